"""The data directory and the database: all state that outlives the process."""

from component.storage.contacts import Subscription, SubscriptionState, SubscriptionStore
from component.storage.errors import DirectoryInUseError, StorageError, UnstorableError
from component.storage.storage import Storage

__all__ = [
    "DirectoryInUseError",
    "Storage",
    "StorageError",
    "Subscription",
    "SubscriptionState",
    "SubscriptionStore",
    "UnstorableError",
]
