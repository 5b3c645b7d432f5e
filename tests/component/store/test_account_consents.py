"""Which people let agents act on their behalf, in both databases."""

import pytest

from component.features.memory_nodes.rows import AccountConsentStore
from component.store import Storage
from xep.jid import JID

pytestmark = [pytest.mark.anyio, pytest.mark.ports]

AGENT = JID.parse("assistant@agent.example")
OTHER = JID.parse("researcher@agent.example")
ALICE = JID.parse("alice@a.example/phone")


async def test_a_consent_is_for_one_agent_and_can_be_withdrawn(storage: Storage) -> None:
    store = AccountConsentStore(storage)
    assert not await store.has(AGENT, ALICE)
    await store.put(AGENT, ALICE)
    await store.put(AGENT, ALICE.bare)
    assert await store.has(AGENT, ALICE)
    assert not await store.has(OTHER, ALICE)
    assert not await store.has(AGENT, JID.parse("bob@a.example"))
    assert await store.remove(AGENT, ALICE)
    assert not await store.has(AGENT, ALICE)
    assert not await store.remove(AGENT, ALICE)
