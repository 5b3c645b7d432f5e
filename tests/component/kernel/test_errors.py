"""Requests of the protocol get its conditions, all others the plain errors of RFC 6120."""

import pytest
from structlog.testing import capture_logs

from component.kernel.errors import AgentErrors
from component.link.router.faults import RouterErrors
from component.store import StorageError
from component.store.outages import Outages
from tests.component.link.router.wire import Bench, do, error_of, iq, request
from tests.component.world import World
from xep import disco
from xep.disco import ItemsQuery
from xep.fluux_agent import errors, skills
from xep.stanza_error import StanzaError

OURS = ["{urn:fluux:agent:0#execute}execute", "{urn:fluux:agent:0}delegation", None]
OTHERS = [
    "{http://jabber.org/protocol/disco#items}query",
    "{urn:fluux:agent:01}x",
    "{urn:fluux:agent:0.1#x}x",
    "",
]


def conditions(error: StanzaError) -> list[str]:
    return [type(one).__name__ for one in error.application]


def every(payload: str | None) -> list[StanzaError]:
    mapper = AgentErrors()
    return [
        mapper.malformed(payload, "why"),
        mapper.too_big(payload, 9, "why"),
        mapper.internal(payload),
        mapper.busy(payload, "why", 5),
    ]


@pytest.mark.parametrize("payload", OURS)
def test_requests_of_the_protocol_get_its_conditions(payload: str | None) -> None:
    found = every(payload)
    assert [one.condition for one in found] == [
        "bad-request",
        "policy-violation",
        "internal-server-error",
        "resource-constraint",
    ]
    assert [conditions(one) for one in found] == [
        ["Malformed"],
        ["TooBig"],
        ["Internal"],
        ["Retry"],
    ]
    assert found[3].application == (errors.Retry(after=5),)


@pytest.mark.parametrize("payload", OTHERS)
def test_others_get_the_plain_errors(payload: str) -> None:
    plain = RouterErrors()
    for error, expected in zip(
        every(payload),
        (
            plain.malformed(payload, "why"),
            plain.too_big(payload, 9, "why"),
            plain.internal(payload),
            plain.busy(payload, "why", 5),
        ),
        strict=True,
    ):
        assert (error.condition, error.text, error.application) == (
            expected.condition,
            expected.text,
            (),
        )


def test_a_fault_in_a_disco_query_is_plain() -> None:
    from component.link.router.table import IQRoute

    bench = Bench([IQRoute("get", ItemsQuery, lambda _: None)], faults=AgentErrors())
    broken = (
        "<query xmlns='http://jabber.org/protocol/disco#items'>"
        "<set xmlns='http://jabber.org/protocol/rsm'><max>x</max></set></query>"
    )
    error = error_of(bench.answer(iq(broken)))
    assert (error.condition, error.application) == ("bad-request", ())


def test_a_router_without_the_protocol_knows_none_of_it() -> None:
    def fails(_request: object) -> None:
        raise RuntimeError

    bench = Bench([do(fails)], faults=RouterErrors())
    error = error_of(bench.answer(request()))
    assert (error.condition, error.application) == ("internal-server-error", ())


def test_a_page_that_cannot_be_meant_is_plain_in_a_disco_query_and_not_in_one_of_ours() -> None:
    world = World()
    for query, found in (
        (f"<query xmlns='{disco.ITEMS}'>", ()),
        (f"<query xmlns='{skills.NAMESPACE}'>", (errors.Malformed(),)),
    ):
        page = "<set xmlns='http://jabber.org/protocol/rsm'><max>1</max><index>-3</index></set>"
        bench = Bench(world.bench.router.table.routes, faults=AgentErrors())
        error = error_of(bench.answer(iq(f"{query}{page}</query>")))
        assert (error.condition, error.application) == ("bad-request", found)


def test_an_outage_is_not_logged_for_each_request() -> None:
    outages, mapper = Outages(), AgentErrors()
    with capture_logs() as logs:
        for _ in range(30):
            error = StorageError("The disk is full.")
            outages.failed("writes", error)
            refused = mapper.temporary(error)
            assert refused is not None
            assert refused.application == (errors.Retry(after=5),)
    loud = [line["event"] for line in logs if line["log_level"] != "debug"]
    assert loud == ["the database cannot be used"]
    with capture_logs() as logs:
        mapper.temporary(StorageError("A file is damaged."))
    assert [line["log_level"] for line in logs] == ["warning"]
