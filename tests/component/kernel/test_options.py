"""What the kernel takes from the settings."""

from typing import Any

import pytest

from component.app.features import make_settings
from component.kernel.options import limited_in_usd

SERVER = {"component_domain": "agent.example.com", "component_secret": "secret"}
ROOM = {"jid": "lobby@rooms.example.com"}


@pytest.mark.parametrize(
    ("sections", "is_limited"),
    [
        ({}, False),
        ({"rooms": [ROOM]}, False),
        ({"rooms": [ROOM | {"budget_usd": 2.0}]}, True),
        ({"room_invitations": {"budget_usd": 2.0}}, True),
        ({"budgets": {"total": {"usd": 5.0}}}, True),
    ],
)
def test_prices_matter_where_a_budget_is_in_us_dollars(
    sections: dict[str, Any], is_limited: bool
) -> None:
    assert limited_in_usd(make_settings(server=SERVER, **sections)) is is_limited
