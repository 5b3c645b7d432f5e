"""Which data of others may reach a peer."""

from typing import Any

import pytest

from component.app.features import make_settings
from component.kernel.options import make_flows
from component.policy.taint import Taint


@pytest.mark.parametrize(
    ("data", "taint", "expected"),
    [
        (["web"], "web", "allow"),
        (["web"], "file", "refuse"),
        ([], "peer", "refuse"),
        (None, "web", "confirm"),
    ],
)
def test_data_reaches_a_peer_only_as_the_settings_say(
    data: list[str] | None, taint: Taint, expected: str
) -> None:
    peer: dict[str, Any] = {"name": "b", "jid": "agent.b.example"}
    if data is not None:
        peer["data"] = data
    server = {"component_domain": "agent.a.example", "component_secret": "s"}
    flows = make_flows(make_settings(server=server, peer=[peer]))
    decision = flows.decide((taint,), ("peer:b",), read_only=False, open_world=True)
    assert decision.verdict == expected
    other = flows.decide((taint,), ("peer:c",), read_only=False, open_world=True)
    assert other.verdict == "confirm"
