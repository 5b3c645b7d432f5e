"""docs/safety.md: its figures are the measured ones, and its rules do what it says of them."""

import re
import tomllib
from pathlib import Path

import pytest

from benchmarks.scanner import PARTS, part, rates
from component.policy.flows import Flow, Flows
from component.settings.flows import Flow as Rule

GUIDE = (Path(__file__).parents[3] / "docs" / "safety.md").read_text()


@pytest.mark.parametrize("name", PARTS)
def test_the_figures_of_our_texts_are_the_measured_ones(name: str) -> None:
    found = rates(part(name))
    row = next(
        line for line in GUIDE.splitlines() if line.startswith(f"| {name.replace('_', '-')}")
    )
    assert f"| {found['attacks']} | {found['benign']} |" in row


def test_the_hits_of_each_kind_are_the_measured_ones() -> None:
    told = GUIDE.partition("Held-out hits by kind:")[2].partition("\n\n")[0]
    kinds = {
        kind: (int(hit), int(of)) for kind, hit, of in re.findall(r"`(\w+)` (\d+) of (\d+)", told)
    }
    measured = {
        key.partition(": ")[2]: (rate.warned, rate.of)
        for key, rate in rates(part("held_out")).items()
        if key.startswith("attacks: ")
    }
    assert kinds == measured


def rules() -> Flows:
    block = re.search(r"```toml\n(.*?)```", GUIDE, re.DOTALL)
    assert block is not None
    read = [Rule(**each) for each in tomllib.loads(block[1])["policy"]["flows"]]
    return Flows([Flow(each.of, each.to, each.then) for each in read])


@pytest.mark.parametrize(
    ("taint", "capability", "read_only", "verdict"),
    [
        ("web", "network:tickets.example.com:443", False, "allow"),
        ("file", "network:tickets.example.com:443", False, "confirm"),
        ("web", "network:other.example:443", True, "confirm"),
        ("web", "payments:send", False, "refuse"),
        ("file", "payments:send", False, "confirm"),
        ("person", "payments:send", False, "allow"),
    ],
)
def test_the_rules_of_the_guide_do_what_stands_beside_them(
    taint: str, capability: str, read_only: bool, verdict: str
) -> None:
    found = rules().verdict([taint], [capability], read_only=read_only, open_world=True)  # type: ignore[list-item]
    assert found == verdict


@pytest.mark.parametrize(
    ("read_only", "open_world", "verdict"),
    [(True, True, "allow"), (False, False, "allow"), (False, True, "confirm")],
)
def test_what_holds_without_a_rule(read_only: bool, open_world: bool, verdict: str) -> None:
    found = Flows().verdict(["web"], [], read_only=read_only, open_world=open_world)
    assert found == verdict
