"""The conditions of urn:fluux:agent:0#errors: one failure, one stanza error, one condition."""

import inspect
from xml.etree import ElementTree as ET

import pytest

from xep.fluux_agent import errors
from xep.stanza import NAMESPACE
from xep.stanza_error import StanzaError

TABLE = [
    (errors.malformed("<x/>: no"), "bad-request", "modify", errors.Malformed()),
    (
        errors.invalid_param("a", "expected an integer"),
        "bad-request",
        "modify",
        errors.InvalidParam(name="a"),
    ),
    (errors.unknown_skill(), "item-not-found", "cancel", errors.UnknownSkill()),
    (
        errors.mode_unavailable("async"),
        "feature-not-implemented",
        "cancel",
        errors.ModeUnavailable(),
    ),
    (
        errors.confirmation_unavailable(),
        "not-allowed",
        "cancel",
        errors.ConfirmationUnavailable(),
    ),
    (errors.deadline_expired(), "not-acceptable", "modify", errors.DeadlineExpired()),
    (errors.too_big(262144), "policy-violation", "modify", errors.TooBig(limit=262144)),
    (errors.too_big(), "policy-violation", "modify", errors.TooBig()),
    (errors.busy(3), "resource-constraint", "wait", errors.Retry(after=3)),
    (errors.timed_out(repeatable=True), "remote-server-timeout", "wait", errors.Timeout()),
    (errors.timed_out(repeatable=False), "remote-server-timeout", "cancel", errors.Timeout()),
    (errors.unknown_task(), "item-not-found", "cancel", errors.UnknownTask()),
    (errors.unknown_input(), "item-not-found", "cancel", errors.UnknownInput()),
    (errors.unknown_confirmation(), "item-not-found", "cancel", errors.UnknownConfirmation()),
    (errors.forbidden("Not you."), "forbidden", "auth", errors.Forbidden()),
    (
        errors.delegation_unavailable(),
        "feature-not-implemented",
        "cancel",
        errors.DelegationUnavailable(),
    ),
    (errors.grant_required(), "not-authorized", "auth", errors.GrantRequired()),
    (
        errors.invalid_grant("expired", "It has expired."),
        "forbidden",
        "auth",
        errors.InvalidGrant(reason="expired"),
    ),
    (errors.denied(), "not-allowed", "cancel", errors.Denied()),
    (errors.confirmation_expired(), "not-acceptable", "modify", errors.ConfirmationExpired()),
    (errors.input_expired(), "not-acceptable", "modify", errors.InputExpired()),
    (errors.expired(), "not-acceptable", "modify", errors.Expired()),
    (errors.conflict("Other content."), "conflict", "cancel", errors.Conflict()),
    (errors.budget_exhausted(), "not-acceptable", "modify", errors.BudgetExhausted()),
    (errors.loop(), "not-allowed", "cancel", errors.Loop()),
    (errors.hops_exceeded(), "not-allowed", "cancel", errors.HopsExceeded()),
    (
        errors.remote_failure(repeatable=True),
        "remote-server-timeout",
        "wait",
        errors.RemoteFailure(),
    ),
    (
        errors.remote_failure(repeatable=False),
        "remote-server-timeout",
        "cancel",
        errors.RemoteFailure(),
    ),
    (errors.outcome_unknown(), "internal-server-error", "cancel", errors.OutcomeUnknown()),
    (errors.over_quota(60), "resource-constraint", "wait", errors.OverQuota()),
    (errors.internal(), "internal-server-error", "cancel", errors.Internal()),
]


@pytest.mark.parametrize(("error", "condition", "kind", "application"), TABLE)
def test_each_error_is_read_with_its_condition_and_type(
    error: StanzaError, condition: str, kind: str, application: object
) -> None:
    xml = f"<iq xmlns='{NAMESPACE}'>{error.encode()}</iq>"
    received = StanzaError.of(ET.fromstring(xml)[0], errors.CONDITIONS)
    assert (received.condition, received.type) == (condition, kind)
    # What may pass says when, beside its condition.
    assert received.application[0] == application
    assert received.application[1:] in ((), (errors.Retry(after=60),))
    assert received.text == error.text != ""
    assert received.lang == "en"


def test_every_condition_is_in_the_table_and_known() -> None:
    declared = {
        value
        for value in vars(errors).values()
        if inspect.isclass(value) and value.__module__ == errors.__name__
    }
    assert declared == set(errors.CONDITIONS) == {type(row[3]) for row in TABLE}


def test_an_invalid_parameter_is_named_whatever_it_is_called() -> None:
    error = errors.invalid_param("a\x00'<", "expected an integer")
    received = StanzaError.of(
        ET.fromstring(f"<iq xmlns='{NAMESPACE}'>{error.encode()}</iq>")[0], errors.CONDITIONS
    )
    assert received.application == (errors.InvalidParam(name="a\ufffd'<"),)
    assert received.text == "a\ufffd'<: expected an integer"


def test_an_invalid_parameter_as_printed() -> None:
    assert errors.invalid_param("a", "expected an integer").encode() == (
        "<error type='modify'><bad-request xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/>"
        "<text xmlns='urn:ietf:params:xml:ns:xmpp-stanzas' xml:lang='en'>"
        "a: expected an integer</text><invalid-param xmlns='urn:fluux:agent:0#errors' name='a'/>"
        "</error>"
    )
