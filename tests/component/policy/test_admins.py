import pytest

from component.policy import PolicyError
from component.policy.entries import read_admins
from xep.jid import JID


def test_admins_are_bare_addresses() -> None:
    assert read_admins(["Boss@Example.com"]) == {JID.parse("boss@example.com")}
    assert read_admins([]) == frozenset()


@pytest.mark.parametrize("entry", ["*", "boss@example.com/desk", "@", "*@example.com"])
def test_nobody_is_an_admin_by_a_pattern_or_a_client(entry: str) -> None:
    with pytest.raises(PolicyError, match=r"agent\.admins"):
        read_admins([entry])
