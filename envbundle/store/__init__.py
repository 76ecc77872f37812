"""The OCI image layout that holds bundles, and the codec of its chunks."""

from .protocol import Store

__all__ = ["Store"]
