"""The caches of cachebox, which are bounded in entries and bytes."""

from component.imports import later

with later("asyncio"):  # it is for coroutines whose results are cached
    from cachebox import FIFOCache, LRUCache

__all__ = ["FIFOCache", "LRUCache"]
