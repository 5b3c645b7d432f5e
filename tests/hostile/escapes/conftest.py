"""What stops an escape is in the kernel and in other processes."""

from tests.loops import anyio_backend

__all__ = ["anyio_backend"]
