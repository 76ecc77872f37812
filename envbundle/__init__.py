"""envbundle moves a working Python GPU environment to another machine and proves it on both sides."""

__version__ = "0.1.0"
