"""What data of strangers may reach, and what an agent was given."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.policy.flows import Decision, Flow, Flows, covers
from component.policy.taint import Taint

TAINTS = st.sets(st.sampled_from(get_args(Taint)))
CAPABILITIES = st.lists(
    st.sampled_from(["network:a.example:443", "memory:write", "filesystem:read", "message"]),
    max_size=3,
)


@given(TAINTS, CAPABILITIES, st.booleans(), st.booleans(), st.booleans())
def test_without_rules_strangers_reach_nothing_that_the_model_chooses(
    taints: set[Taint], capabilities: list[str], read_only: bool, open_world: bool, chosen: bool
) -> None:
    decision = Flows().decide(
        taints,
        capabilities,
        read_only=read_only,
        open_world=open_world,
        chosen=lambda: ("url",) if chosen else (),
    )
    stopped = bool(taints - {"person"}) and open_world and chosen
    assert decision.verdict == (("refuse" if read_only else "confirm") if stopped else "allow")
    assert decision.chosen == (("url",) if stopped else ())
    assert bool(decision.reason) == (bool(taints - {"person"}) and open_world)


def verdict(flows: Flows, taints: set[Taint], *capabilities: str) -> str:
    return flows.decide(taints, capabilities, read_only=False, open_world=True).verdict


def test_the_first_rule_that_matches_counts() -> None:
    flows = Flows(
        [
            Flow(("web",), ("message:boss",), "refuse"),
            Flow(("web", "file"), ("message*",), "allow"),
        ]
    )
    assert verdict(flows, {"web"}, "message:boss") == "refuse"
    assert verdict(flows, {"web"}, "message:other") == "allow"
    assert verdict(flows, {"file"}, "message:boss") == "allow"
    assert verdict(flows, {"peer"}, "message:boss") == "confirm"


def test_a_rule_counts_whatever_was_chosen_and_the_reason_names_it() -> None:
    flows = Flows([Flow(("web",), ("a",), "allow"), Flow(("web",), ("b",), "refuse")])
    for chosen in ((), ("url",)):
        for capability, expected in (("a", "allow"), ("b", "refuse")):
            decision = flows.decide(
                {"web", "person"},
                [capability],
                read_only=True,
                open_world=True,
                chosen=lambda chosen=chosen: chosen,  # type: ignore[misc]  # bound now
            )
            assert decision.verdict == expected
            assert decision.reason == f"web: rule {'ab'.index(capability) + 1}"
    assert flows.decide({"web"}, [], read_only=True, open_world=True).verdict == "refuse"


def test_the_strictest_of_all_counts() -> None:
    flows = Flows([Flow(("web",), ("a",), "allow"), Flow(("file",), ("b",), "refuse")])
    assert verdict(flows, {"web"}, "a") == "allow"
    assert verdict(flows, {"web"}, "a", "b") == "confirm"
    assert verdict(flows, {"web", "file"}, "a", "b") == "refuse"
    assert verdict(flows, {"person"}, "a", "b") == "allow"


def test_a_name_stands_for_all_below_it_as_in_what_is_granted() -> None:
    flows = Flows([Flow(("web",), ("network",), "refuse")])
    assert verdict(flows, {"web"}, "network:a.example:443") == "refuse"
    assert verdict(flows, {"web"}, "network") == "refuse"
    assert verdict(flows, {"web"}, "networks:a") == "confirm"
    assert verdict(flows, {"web"}) == "confirm"


def test_a_star_reaches_what_declares_nothing() -> None:
    assert verdict(Flows([Flow(("web",), ("*",), "refuse")]), {"web"}) == "refuse"
    assert verdict(Flows([Flow(("web",), ("n*",), "refuse")]), {"web"}) == "confirm"


@pytest.mark.parametrize(
    ("granted", "missing"),
    [
        (("*",), None),
        (("network", "memory:write"), None),
        (("network:*", "memory:w*"), None),
        (("network:a.example:443",), "memory:write"),
        (("memory:write",), "network:a.example:443"),
        (("network:a.example",), "memory:write"),
        (("net", "memory"), "network:a.example:443"),
        ((), "network:a.example:443"),
    ],
)
def test_what_is_granted(granted: tuple[str, ...], missing: str | None) -> None:
    assert covers(granted, ["network:a.example:443", "memory:write"]) == missing


@pytest.mark.parametrize("open_world", [True, False])
def test_values_reserved_for_the_person_are_refused_unless_a_rule_decides(open_world: bool) -> None:
    def decide(*rules: Flow, taint: Taint = "web") -> Decision:
        return Flows(rules).decide(
            [taint],
            ["pay"],
            read_only=False,
            open_world=open_world,
            chosen=lambda: ("to", "password"),
            reserved=lambda: ("password",),
        )

    refused = Decision("refuse", "web: must be the person's own: password", ("password",))
    assert decide() == refused
    assert decide(taint="person").verdict == "allow"
    assert decide(Flow(("web",), ("pay",), "confirm")).verdict == "confirm"
