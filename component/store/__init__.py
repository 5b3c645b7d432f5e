"""The data directory and the database: all state that outlives the process."""

from component.store.contacts import Subscription, SubscriptionState, SubscriptionStore
from component.store.errors import (
    DirectoryInUseError,
    OutdatedError,
    StorageError,
    UnstorableError,
)
from component.store.storage import Storage

__all__ = [
    "DirectoryInUseError",
    "OutdatedError",
    "Storage",
    "StorageError",
    "Subscription",
    "SubscriptionState",
    "SubscriptionStore",
    "UnstorableError",
]
