"""The same notifications through ejabberd."""

import pytest

from tests.servers.base import Server
from tests.servers.test_notifications import (
    hooked,
    juliet,
    test_a_delivery_reaches_its_person,
    test_a_held_result_survives_a_kill_and_waits_for_its_person,
    test_nobody_is_notified_at_night,
)

# The same tests, with the server of this module.
__all__ = [
    "hooked",
    "juliet",
    "test_a_delivery_reaches_its_person",
    "test_a_held_result_survives_a_kill_and_waits_for_its_person",
    "test_nobody_is_notified_at_night",
]

pytestmark = [pytest.mark.servers]


@pytest.fixture(scope="module")
def chat_server(ejabberd_server: Server) -> Server:
    """Where this module has its service."""
    return ejabberd_server
