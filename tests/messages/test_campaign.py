"""Every message has one answer or one named failure, whatever fails around the service."""

import os
from pathlib import Path
from typing import Final

import anyio
import pytest

from tests.messages.campaign import Campaign
from tests.profiles import SEED as SEED_OF_ALL
from tests.profiles import THOROUGH

MESSAGES: Final = int(os.environ.get("MESSAGES", "100000" if THOROUGH else "50"))

pytestmark = pytest.mark.servers
SEED: Final = int(os.environ.get("MESSAGES_SEED", SEED_OF_ALL))


def test_each_message_is_answered_once(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path, MESSAGES, SEED)
    try:
        anyio.run(campaign.run, backend="trio")
    finally:
        print(f"{len(campaign.sent)} messages; {dict(sorted(campaign.faults.items()))}")
        for one in campaign.unanswered[:10]:
            print("unanswered:", one)
    assert not campaign.answered_twice
    assert not campaign.done_twice
    assert {"kill", "stream reset", "stream cut in a stanza", "disk locked"} <= set(campaign.faults)
