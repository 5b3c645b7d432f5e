"""Every IQ get or set gets exactly one reply, whatever it holds and whatever its handler does."""

import math
import random
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, cast

import anyio
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import given
from hypothesis import strategies as st

from component.link.router.table import Request, StanzaRoute
from component.link.router.work import Shares, _is_stopped, _raise_fatal
from tests.component.link.router.wire import (
    AGENT,
    DOMAIN,
    REFUSED,
    Bench,
    Do,
    Done,
    addresses,
    condition,
    do,
    element,
    is_bare,
    parse,
)
from xep.binding import ContentError, EncodingError
from xep.fluux_agent.errors import InvalidParam
from xep.jid import JID, JIDError
from xep.stanza_error import DEFAULT_TYPES, StanzaError

pytestmark = pytest.mark.anyio

_BATCH = 192
_FOREVER = math.inf
_STANZAS = "urn:ietf:params:xml:ns:xmpp-stanzas"

# -- what handlers do ----------------------------------------------------------------------------


def _raising(error: BaseException) -> Callable[[], Any]:
    def act() -> Any:
        raise error

    return act


def _returning(value: Any) -> Callable[[], Any]:
    return lambda: value


_AT_ONCE: dict[str, Callable[[], Any]] = {
    "result": _returning(Done(text="done")),
    "empty": _returning(None),
    "forbidden character": _returning(Done(text="\0")),
    "surrogate": _returning(Done(text="\ud800")),
    "wrong type": _returning(Done(text=cast("str", 7))),
    "too big": _returning(Done(text="é" * 300_000)),
    "no payload": _returning("text"),
    "false": _returning(False),
    "refuse": _raising(StanzaError("not-allowed", "no \0 way")),
    "refuse in no language": _raising(StanzaError("not-allowed", "no", lang="\0")),
    "refuse with a bad condition": _raising(
        StanzaError("bad-request", application=(InvalidParam(name="\x1f"),))
    ),
    "refuse at length": _raising(StanzaError("gone", address="x" * 300_000)),
    "value error": _raising(ValueError("secret")),
    "content error": _raising(ContentError("x", "of a peer's")),
    "encoding error": _raising(EncodingError("of its own")),
    "time-out of its own": _raising(TimeoutError()),
    "group": _raising(ExceptionGroup("several", [ValueError(), KeyError()])),
    "recursion": _raising(RecursionError()),
}


async def _later(act: Callable[[], Any], pauses: int) -> Any:
    for _ in range(pauses):
        await checkpoint()
    return act()


async def _hang() -> None:
    await anyio.sleep_forever()


async def _hang_below() -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.sleep_forever)
        tasks.start_soon(anyio.sleep_forever)


async def _break_below() -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.sleep_forever)
        raise KeyError("secret")


async def _clean_up() -> None:
    try:
        await anyio.sleep_forever()
    finally:
        raise ValueError("in the way out")


async def _clean_up_below() -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_clean_up)
        await anyio.sleep_forever()


async def _answer_late() -> Done:
    with anyio.CancelScope(shield=True):
        for _ in range(5):
            await checkpoint()
    return Done(text="late")


_SUSPENDING: dict[str, Callable[[], Awaitable[Any]]] = {
    "hang": _hang,
    "hang below": _hang_below,
    "break below": _break_below,
    "clean up": _clean_up,
    "clean up below": _clean_up_below,
    "answer late": _answer_late,
}
_ENDLESS = ("hang", "hang below", "clean up", "clean up below")
_BEHAVIOURS = (*_AT_ONCE, *(f"later {name}" for name in _AT_ONCE), *_SUSPENDING)


def _behave(what: str) -> Any:
    if what in _SUSPENDING:
        return _SUSPENDING[what]()
    if what.startswith("later "):
        return _later(_AT_ONCE[what.removeprefix("later ")], len(what) % 3)
    return _AT_ONCE.get(what, _AT_ONCE["result"])()


def _requested(request: Request[Do]) -> Any:
    return _behave(request.payload.what)


def _said(request: Request[None]) -> Any:
    answer = _behave(request.stanza.text_of("body") or "")
    return answer if hasattr(answer, "__await__") else None


_ROUTES = (
    do(_requested, "get"),
    do(_requested, "set"),
    StanzaRoute("message", frozenset(("chat", "normal", "groupchat")), _said),
    StanzaRoute("presence", frozenset(("available", "probe")), _said),
)

# -- what is sent --------------------------------------------------------------------------------

_characters = st.characters(
    codec="utf-8", exclude_categories=["Cs"], exclude_characters="\ufffe\uffff"
).filter(lambda char: char >= " " or char in "\t\n\r")
_text = st.text(_characters, max_size=12)
_senders = st.one_of(
    st.sampled_from(
        [
            "alice@a.example/phone",
            "alice@a.example/desk",
            "bob@a.example",
            "b.example",
            "peer@b.example/♥ &'\"",
            DOMAIN,
            AGENT,
            f"mallory@{REFUSED}/x",
            REFUSED,
            "",
            "@a.example",
            "alice@",
            "alice@a.example/",
            "Alice@a.example/phone",
            "al ice@a.example",
            "☃@a.example/<&>",
            "ა@a.example",
            "a" * 1100 + "@a.example",
            "alice@a..example",
        ]
    ),
    st.none() | _text,
)
_receivers = st.sampled_from(
    [DOMAIN, AGENT, f"{AGENT}/x", f"{DOMAIN}/y", f"nobody@{DOMAIN}", "other.example", "@", "", None]
)
_ids = st.none() | st.sampled_from(["", "1", "&<'\">\t\n", "i" * 2000]) | _text
_types = st.sampled_from(["get", "set"] * 6 + ["result", "error", "", "GET", "chat", None])
_children = st.one_of(
    st.sampled_from(_BEHAVIOURS).map(
        lambda what: element("do", xmlns="urn:test:router", what=what, number="7")
    ),
    st.sampled_from(
        [
            "<do xmlns='urn:test:router' number='seven'/>",
            "<do xmlns='urn:test:router' number='1' what='result'><x/>text<do/></do>",
            "<done xmlns='urn:test:router'/>",
            "<ping xmlns='urn:xmpp:ping'/>",
            "<query/>",
            "<do/>",
            "<error type='cancel'/>",
            "<x:do xmlns:x='urn:test:router' what='later result'/>",
        ]
    ),
)
_contents = st.one_of(
    _children, _children, _children, st.lists(_children, max_size=3).map("".join), st.just(" text ")
)
_bodies = st.sampled_from(_BEHAVIOURS).map(lambda what: element("body", what))


class Batch(list[tuple[str, dict[str, str | None]]]):
    """Stanzas, shown as hypothesis can bear it."""

    def __repr__(self) -> str:
        return f"<{len(self)} stanzas>"


@st.composite
def _batches(draw: st.DrawFn) -> Batch:
    """Stanzas by their text and their attributes: a few of each part, put together at random."""
    senders = draw(st.lists(_senders, min_size=2, max_size=5))
    receivers = draw(st.lists(_receivers, min_size=1, max_size=3))
    ids = draw(st.lists(_ids, min_size=1, max_size=4))
    contents = draw(st.lists(_contents, min_size=3, max_size=10))
    bodies = draw(st.lists(_bodies, min_size=1, max_size=4))
    types = draw(st.lists(_types, min_size=2, max_size=4))
    put = random.Random(draw(st.integers(0, 2**32)))  # its choices repeat with the example
    stanzas = Batch()
    for _ in range(_BATCH):
        head = {
            "from": put.choice(senders),
            "to": put.choice(receivers),
            "id": put.choice(ids),
            "type": put.choice(types),
        }
        name, content = "iq", put.choice(contents)
        if put.random() < 0.1:
            name, content = put.choice(["message", "presence"]), put.choice(bodies)
            head["type"] = put.choice(["chat", "error", "probe", "unheard-of", None])
        stanzas.append((element(name, content, **head), {"name": name, **head}))
    return stanzas


def _wants_reply(head: dict[str, str | None]) -> bool:
    # An IQ of no known type is answered with an error too (RFC 6120 §8.2.3).
    return head["name"] == "iq" and head["type"] not in ("result", "error")


@given(
    stanzas=_batches(),
    reads=st.integers(1, 6),
    patient=st.booleans(),
    share=st.sampled_from([2, 64]),
    congested=st.booleans(),
)
async def test_exactly_one_reply(
    stanzas: list[tuple[str, dict[str, str | None]]],
    reads: int,
    patient: bool,
    share: int,
    congested: bool,
) -> None:
    # Those that hang run into their time-out, or are cancelled by the end of the service.
    bench = Bench(
        _ROUTES,
        shares=Shares(per_principal=share, total=100),
        request_timeout_s=0.002 if patient else _FOREVER,
    )
    size = -(-len(stanzas) // reads)
    async with bench.running():
        for start in range(0, len(stanzas), size):
            bench.output.congested = congested and start == size
            bench.receive(*(text for text, _ in stanzas[start : start + size]))
            if start % 2:
                await checkpoint()
        await bench.router.drain(30 if patient else 0)
    replies = [reply for reply in bench.replies if reply.tag == "{jabber:client}iq"]
    wanted = Counter(
        (head["id"], head["from"], head["to"] or DOMAIN)
        for _, head in stanzas
        if _wants_reply(head)
    )
    assert Counter(map(addresses, replies)) == wanted
    for reply in replies:
        _check_form(reply)
    assert bench.router._admission.total == 0


def _check_form(reply: Any) -> None:
    sender = _parsed(reply.get("to") or "")
    if reply.get("type") == "result":
        assert sender is not None
        assert sender.domain != REFUSED
        assert [child.tag for child in reply] in ([], ["{urn:test:router}done"])
        return
    assert reply.get("type") == "error"
    (error,) = reply
    conditions = [c.tag.removeprefix(f"{{{_STANZAS}}}") for c in error]
    named = [name for name in conditions if name in DEFAULT_TYPES]
    assert len(named) == 1
    assert error.get("type") in ("auth", "cancel", "modify", "wait")
    if sender is None:
        assert named == ["jid-malformed"]
    elif sender.domain == REFUSED:
        assert is_bare(reply, "service-unavailable")


def _parsed(text: str) -> JID | None:
    try:
        return JID.parse_delivered(text)
    except JIDError:
        return None


def test_the_campaign_sends_thousands_and_a_thorough_one_two_hundred_thousand() -> None:
    from hypothesis import settings

    assert settings.get_profile("gate").max_examples * _BATCH >= 3_000
    assert settings.get_profile("thorough").max_examples * _BATCH >= 200_000


# -- ends that the campaign cannot tell apart ------------------------------------------------------


@pytest.mark.parametrize("what", _BEHAVIOURS)
async def test_each_ending_is_one_reply(what: str) -> None:
    bench = Bench([do(lambda request: _behave(request.payload.what))], request_timeout_s=_FOREVER)
    async with bench.running():
        bench.receive(element("iq", _do(what), type="get", id="1", from_="a@b.example", to=DOMAIN))
        await bench.router.drain(0 if what in _ENDLESS else 30)
    (reply,) = bench.replies
    assert "secret" not in bench.output.sent[0]
    expected = {
        "result": "result",
        "empty": "result",
        "forbidden character": "result",
        "surrogate": "result",
        "too big": "policy-violation",
        "refuse": "not-allowed",
        "refuse in no language": "not-allowed",
        "refuse with a bad condition": "bad-request",
        "refuse at length": "policy-violation",
        "hang": "recipient-unavailable",
        "hang below": "recipient-unavailable",
        "answer late": "result",
    }.get(what.removeprefix("later "), "internal-server-error")
    found = reply.get("type")
    if found == "error":
        found = next(name for child in reply[0] if (name := child.tag.partition("}")[2]) != "text")
    if what == "clean up below":  # cancelled and broken: trio says both, asyncio the latter
        assert found in ("internal-server-error", "recipient-unavailable")
    else:
        assert found == expected


async def test_an_interrupt_from_the_keyboard_is_no_fault_of_a_handler() -> None:
    assert _is_stopped(KeyboardInterrupt())
    assert not _is_stopped(ValueError())
    assert not _is_stopped(SystemExit())


async def test_only_what_ends_the_process_passes() -> None:
    for harmless in (ValueError(), ExceptionGroup("", [ValueError()])):
        _raise_fatal(harmless)
    with pytest.raises(KeyboardInterrupt):
        _raise_fatal(KeyboardInterrupt())
    with pytest.raises(BaseExceptionGroup) as caught:
        _raise_fatal(BaseExceptionGroup("", [ValueError(), SystemExit()]))
    assert [type(error) for error in caught.value.exceptions] == [SystemExit]


async def test_work_past_its_time_is_answered() -> None:
    bench = Bench([do(lambda _request: _hang())], request_timeout_s=0)
    async with bench.running():
        bench.receive(element("iq", _do(""), type="get", id="1", from_="a@b.example", to=DOMAIN))
        await bench.settled()
    (reply,) = bench.replies
    assert reply[0][0].tag.endswith("remote-server-timeout")
    assert reply[0].get("type") == "wait"


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_cancellation_of_something_else_ends_nothing_else(anyio_backend: str) -> None:
    """A library's own asyncio future that is cancelled raises what a cancelled task gets too."""
    import asyncio

    async def waits_in_vain() -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    def handler(request: Request[Do]) -> Awaitable[Any]:
        return waits_in_vain() if request.payload.what == "stray" else _later(lambda: None, 3)

    def said(_request: Request[None]) -> Awaitable[None]:
        return waits_in_vain()

    bench = Bench([do(handler), StanzaRoute("message", frozenset(("chat",)), said)])
    async with bench.running():
        for what in ("stray", "", "stray", ""):
            id_ = secrets.token_hex(4)
            bench.receive(
                element("iq", _do(what), type="get", id=id_, from_="a@b.example", to=DOMAIN),
                element("message", "<body/>", type="chat", from_="a@b.example", to=DOMAIN),
            )
            await bench.settled()
    answers = [reply for reply in bench.replies if reply.tag.endswith("iq")]
    bounces = [reply for reply in bench.replies if reply.tag.endswith("message")]
    assert [reply.get("type") for reply in answers] == ["error", "result"] * 2
    assert [condition(reply) for reply in (*answers[::2], *bounces)] == [
        "internal-server-error"
    ] * 6


def _do(what: str) -> str:
    return element("do", xmlns="urn:test:router", what=what)


async def test_nothing_is_left_unanswered_after_the_end() -> None:
    bench = Bench([do(lambda _request: _hang())])
    async with bench.running():
        pass
    bench.receive(element("iq", _do(""), type="get", id="1", from_="a@b.example", to=DOMAIN))
    assert parse(bench.output.sent[0])[0][0].tag.endswith("resource-constraint")
