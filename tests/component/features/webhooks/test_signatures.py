"""Signed deliveries: how their headers are read, and how invalid ones are answered."""

import pytest

from component.features.webhooks.delivery import GitHubVerifier, StandardVerifier, WebhookError
from tests.component.features.webhooks.world import KEY, SECRET, generic_headers, github_headers

BODY = b"{}"


def _headers(found: list[tuple[str, str]]) -> dict[str, str]:
    return {name.lower(): value for name, value in found}


def test_signatures_are_read_up_to_1024_characters() -> None:
    headers = _headers(generic_headers(BODY, at=100))
    verifier = StandardVerifier([KEY], window_s=300)
    headers["webhook-signature"] = headers["webhook-signature"].ljust(1023) + "x"
    assert verifier.verify(headers, BODY, 100).key == "msg_1"
    headers["webhook-signature"] += "x"
    with pytest.raises(WebhookError, match="webhook-signature is missing"):
        verifier.verify(headers, BODY, 100)


@pytest.mark.parametrize(("now", "when"), [(101, "1 s in the past"), (99, "1 s in the future")])
def test_the_operator_is_told_which_clock_is_ahead(now: float, when: str) -> None:
    verifier = StandardVerifier([KEY], window_s=0.5)
    with pytest.raises(WebhookError) as refused:
        verifier.verify(_headers(generic_headers(BODY, at=100)), BODY, now)
    assert when in refused.value.hint


def test_a_delivery_of_github_without_an_id_has_the_beginning_of_its_digest() -> None:
    found = GitHubVerifier([SECRET]).verify(_headers(github_headers(BODY, id_="")), BODY, 0)
    assert len(found.id) == 32
    assert found.key.startswith(found.id)
