"""A trusted descriptor and a store become a verified generation under a prefix."""
