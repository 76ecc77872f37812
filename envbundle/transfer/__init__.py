"""Moving stores: locations, what the other end lacks, copy and resume."""
