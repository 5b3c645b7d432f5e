"""Stanzas that arrive at an instance, and that another one waits for."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
import pytest

from component.app.schema import SCHEMA
from component.features.balancing import passing as passing_module
from component.features.balancing.instances import Instances, new_instance
from component.features.balancing.passing import StanzaPassing
from component.link.router.router import StanzaEvent
from component.store import Storage
from tests.waiting import eventually
from xep.stanza import Incoming
from xep.stanza_stream import StanzaReceived, received
from xep.stream import ParserOf, StanzaSkipped, StreamLimits

pytestmark = [pytest.mark.anyio, pytest.mark.ports]

DOMAIN = "agent.example.com"
PEER = "romeo@example.com/garden"
COMMANDS = "http://jabber.org/protocol/commands"


def read(xml: str, limits: StreamLimits | None = None) -> StanzaEvent:
    """Return what the stream makes of a stanza."""
    namespace = "jabber:component:accept"
    parser = ParserOf(received, (namespace,), limits)
    head = f"<stream:stream xmlns='{namespace}' xmlns:stream='http://etherx.jabber.org/streams'>"
    *_, event = parser.receive(f"{head}{xml}".encode())
    assert isinstance(event, StanzaReceived | StanzaSkipped)
    return event


def answer(id_: str, inside: str = "", type_: str = "result") -> str:
    return f"<iq type='{type_}' id='{id_}' from='{PEER}' to='{DOMAIN}'>{inside}</iq>"


def command(session: str, type_: str = "set") -> str:
    attributes = f"xmlns='{COMMANDS}' node='echo' sessionid='{session}'"
    return (
        f"<iq type='{type_}' id='c1' from='{PEER}' to='{DOMAIN}'><command {attributes}>"
        "<x xmlns='jabber:x:data' type='submit'/></command></iq>"
    )


class Instance:
    """One of two instances on a database."""

    def __init__(self, storage: Storage) -> None:
        self.instances: Instances = new_instance()
        self.received: list[Incoming] = []
        self.passing = StanzaPassing(storage, self.instances, DOMAIN, self._hand_over)

    async def _hand_over(self, stanza: Incoming) -> None:
        self.received.append(stanza)

    @property
    def tag(self) -> str:
        return self.instances.tag

    def kept(self, *events: StanzaEvent) -> list[StanzaEvent]:
        """Return those that are this instance's own business."""
        return list(self.passing.screen(events))


@asynccontextmanager
async def pair(directory: Path, url: str) -> AsyncIterator[tuple[Instance, Instance]]:
    """Two instances that know each other."""
    async with AsyncExitStack() as stack:
        stack.enter_context(anyio.fail_after(60))
        found = []
        for name in ("one", "other"):
            opened = Storage.open(SCHEMA, directory / name, postgres=url)
            found.append(Instance(await stack.enter_async_context(opened)))
        one, other = found
        one.instances.others = frozenset((other.tag,))
        other.instances.others = frozenset((one.tag,))
        async with anyio.create_task_group() as group:
            for each in found:
                await group.start(each.passing.send)
                await group.start(each.passing.receive)
            yield one, other
            group.cancel_scope.cancel()


async def test_an_answer_is_passed_to_the_instance_that_asked(
    tmp_path: Path, migrated_url: str
) -> None:
    async with pair(tmp_path, migrated_url) as (one, other):
        items = "<query xmlns='jabber:iq:version'><name>ä &amp; b</name></query>"
        for number in range(50):
            event = read(answer(f"{one.tag}id{number}", items))
            assert other.kept(event) == []
        await eventually(lambda: len(one.received) == 50)
        assert [each.id for each in one.received] == [f"{one.tag}id{n}" for n in range(50)]
        (name,) = {each.payload_names[0] for each in one.received}
        assert name == "{jabber:iq:version}query"
        assert one.received[0].sender == PEER
        assert "ä &amp; b" in one.received[0].forward()
        assert other.received == []


async def test_what_belongs_to_this_instance_or_to_none_is_not_passed_on(
    tmp_path: Path, migrated_url: str
) -> None:
    addresses = f"from='{PEER}' to='{DOMAIN}'"
    async with pair(tmp_path, migrated_url) as (one, other):
        ours = [
            read(answer(f"{one.tag}id")),
            read(answer("00000000.id")),
            read(answer("short")),
            read(f"<message id='{other.tag}id' {addresses}><body>x</body></message>"),
            read(f"<iq type='get' id='{other.tag}id' {addresses}><x xmlns='x'/></iq>"),
            read(command(f"{one.tag}session")),
            read(command("none")),
        ]
        assert one.kept(*ours) == ours
        other.instances.others = frozenset()
        gone = read(answer(f"{one.tag}id"))
        assert other.kept(gone) == [gone], "that instance does not run any more"


async def test_the_form_of_a_command_is_passed_to_the_instance_that_has_its_session(
    tmp_path: Path, migrated_url: str
) -> None:
    async with pair(tmp_path, migrated_url) as (one, other):
        assert other.kept(read(command(f"{one.tag}session"))) == []
        await eventually(lambda: bool(one.received))
        (stanza,) = one.received
        assert (stanza.type, stanza.sender, stanza.sole_child) == (
            "set",
            PEER,
            f"{{{COMMANDS}}}command",
        )


async def test_a_probe_is_passed_to_the_instance_that_sent_it(
    tmp_path: Path, migrated_url: str
) -> None:
    async with pair(tmp_path, migrated_url) as (one, other):
        probe = f"<iq type='get' id='{one.tag}probe-1' from='probe-ab@{DOMAIN}' to='{DOMAIN}'/>"
        assert other.kept(read(probe)) == []
        await eventually(lambda: bool(one.received))
        assert one.received[0].id == f"{one.tag}probe-1"


async def test_a_probe_that_nobody_waits_for_any_more_is_ignored(
    tmp_path: Path, migrated_url: str
) -> None:
    async with pair(tmp_path, migrated_url) as (one, _):
        for tag in (one.tag, "00000000."):
            probe = f"<iq type='get' id='{tag}probe-1' from='probe-ab@{DOMAIN}' to='{DOMAIN}'/>"
            assert one.kept(read(probe)) == []
            own = read(probe.replace("probe-1", "id"))
            assert one.kept(own) == [own], "a request to ourselves is served"
            other = read(probe.replace(f"probe-ab@{DOMAIN}", PEER))
            assert one.kept(other) == [other], "a request of somebody else is served"


async def test_an_answer_that_cannot_be_read_is_an_error_for_the_instance_that_asked(
    tmp_path: Path, migrated_url: str
) -> None:
    async with pair(tmp_path, migrated_url) as (one, other):
        large = answer(f"{one.tag}id", "<a xmlns='x'>" + 2000 * "<b/>" + "</a>")
        event = read(large, StreamLimits(elements=100))
        assert isinstance(event, StanzaSkipped)
        assert other.kept(event) == []
        await eventually(lambda: bool(one.received))
        (stanza,) = one.received
        assert (stanza.type, stanza.sender, stanza.id) == ("error", PEER, f"{one.tag}id")
        assert stanza.error().condition == "policy-violation"


async def test_more_than_may_wait_is_dropped(
    tmp_path: Path, migrated_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pair(tmp_path, migrated_url) as (one, other):
        monkeypatch.setattr(passing_module, "_MOST_BYTES", 200)
        events = [read(answer(f"{one.tag}id{number}")) for number in range(5)]
        assert other.kept(*events) == []
        await eventually(lambda: len(one.received) == 2)
        assert other.kept(read(answer(f"{one.tag}last"))) == []
        await eventually(lambda: len(one.received) == 3)
        assert [(each.id or "").removeprefix(one.tag) for each in one.received] == [
            "id0",
            "id1",
            "last",
        ]
