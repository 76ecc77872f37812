"""The verbs as typed functions: composition only; what the command line calls and others script."""
