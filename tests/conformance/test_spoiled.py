"""Tasks, Confirm and Commands: the installed agent, with one thing spoiled on its way to the kit.

The agent is known by its command line alone. It attaches to the kit, and what it sends passes
through here, where one thing is rewritten; the kit has to name the requirement that this breaks.
"""

import re
from collections.abc import Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio
import pytest
from anyio.abc import SocketAttribute

from conformance import self_test
from conformance.checks import all_checks
from conformance.drivers.acceptor import AcceptorDriver
from conformance.model import Outcome, Run, Status
from conformance.requirements import load
from conformance.runner import Plan, run
from conformance.selection import select
from conformance.skills_map import fixtures
from tests.profiles import THOROUGH

pytestmark = pytest.mark.anyio
SPECIFICATION = load()
Spoil = Callable[[str], str]


def swap(pattern: str, replacement: str, where: str = "") -> Spoil:
    """Rewrite what fits the pattern, in stanzas that hold the text `where`."""

    def spoiled(xml: str) -> str:
        return re.sub(pattern, replacement, xml) if where in xml else xml

    return spoiled


# What makes the stanzas that watches look at, where no check is about the requirement itself.
PROVOKED_BY = {
    "INP-005": ["input.content"],
    "ART-005": ["artifact.parts"],
    "CNF-017": ["confirm.question"],
    "ERR-008": ["confirm.denied"],
}
WITHOUT_PEER = {
    "a peer gets what a person has to allow",
    "what did not run may not be repeated",
    "a peer is denied",
    "a field that nobody knows",
}
"""What is seen only where the agent has to find out that the kit's peer is not a person."""
AGENTS = 6 if THOROUGH else 3
"""Processes, each of which is let connect again for each defect."""
TIMEOUT_S = 25.0
"""Longer than any answer takes. Of all defects only one, `does not ask back`, waits for it."""


def _to_romeo(xml: str) -> str:
    return re.sub(r" to='[^']*'", " to='romeo@localhost'", xml) if NORMAL in xml else ""


def _another_shelf(xml: str) -> str:
    return xml.replace("the archive", "the library") if CONFIRM in xml else ""


def _still_tells(xml: str) -> str:
    if "romeo@localhost/chat.stop" not in xml or "<query " not in xml:
        return ""
    return "<message from='agent.localhost' to='romeo@localhost'><body>Done!</body></message>"


def _later(xml: str) -> str:
    if NORMAL not in xml or "state='cancelled'" not in xml:
        return ""
    later = re.sub(r" revision='\d+'", " revision='99'", xml)
    return later.replace(NORMAL, HEADLINE).replace("state='cancelled'", "state='running'")


def _asks_juliet(xml: str) -> str:
    if "<confirmation-unavailable " not in xml:
        return ""
    body = "<body>May I erase the shelf of a peer?</body>"
    return f"<message from='agent.localhost' to='juliet@localhost' type='chat'>{body}</message>"


def _accepted(xml: str) -> str:
    if "<iq" not in xml or "type='error'" not in xml:
        return xml
    accepted = "<accepted xmlns='urn:fluux:agent:0#execute' task='t-1'/>"
    return re.sub(r"<error.*</error>", accepted, xml).replace("type='error'", "type='result'", 1)


def _first_page(xml: str) -> str:
    if "<feature-not-implemented " not in xml:
        return xml
    page = "<tasks xmlns='urn:fluux:agent:0#task'/>"
    return re.sub(r"<error.*</error>", page, xml).replace("type='error'", "type='result'", 1)


def _as_result(xml: str) -> str:
    """Return an error as a result of a skill."""
    result = "<result xmlns='urn:fluux:agent:0#execute' skill='conformance.echo'/>"
    return re.sub(r"<error.*</error>", result, xml).replace("type='error'", "type='result'", 1)


def takes(reason: str) -> Spoil:
    """Let grants pass that are refused for a reason."""
    refused = f"<invalid-grant xmlns='urn:fluux:agent:0#errors' reason='{reason}'"
    return lambda xml: _as_result(xml) if refused in xml else xml


def another_letter(before: str) -> Spoil:
    """Change the letter that follows the pattern."""

    def spoiled(xml: str) -> str:
        return re.sub(f"({before})(.)", lambda m: m[1] + ("B" if m[2] == "A" else "A"), xml)

    return spoiled


def _no_receipts(xml: str) -> str:
    """Refuse what has a receipt."""
    if "<receipt " not in xml:
        return xml
    error = "<error type='auth'><forbidden xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error>"
    return re.sub(r"<result.*</result>", error, xml).replace("type='result'", "type='error'", 1)


HEADLINE = "type='headline'"
NORMAL = "type='normal'"
CONFIRM = "<hash "
_WAITS = r"(<task [^>]*)state='input-required'"
DEFECTS: dict[str, tuple[str, Spoil]] = {
    # Tasks
    "accepted in revision 1": ("EXE-023", swap(r" revision='0'", " revision='1'", "<accepted")),
    "accepted as running": ("EXE-024", swap(r" state='accepted'", " state='running'", "<accepted")),
    "a revision is left out": ("TSK-003", swap(r" revision='4'", " revision='5'", NORMAL)),
    "completed, then running": ("TSK-001", swap(r"state='running'", "state='completed'", HEADLINE)),
    "time runs backwards": ("TSK-005", swap(r" updated='2", " updated='1", NORMAL)),
    "retention shrinks": ("TSK-014", swap(r" retain-until='2", " retain-until='1", NORMAL)),
    "events without a time": ("EVT-002", swap(r" updated='[^']*'", "", "<message")),
    "events of a stored type": ("EVT-003", swap(HEADLINE, "type='chat'", HEADLINE)),
    "the end as a headline": ("EVT-004", swap(NORMAL, HEADLINE, NORMAL)),
    "events without a thread": ("EVT-005", swap(r"<thread>[^<]*</thread>", "", "<message")),
    "events with a body": ("EVT-007", swap(r"<thread>", "<body>x</body><thread>", HEADLINE)),
    "the end without a body": ("EVT-006", swap(r"<body.*?</body>", "", NORMAL)),
    "get hides the result": ("TSK-007", swap(r"<result.*?</result>", "", "<iq")),
    "lists hold results": (
        "TSK-016",
        swap(
            r"(<task id='[^']*'[^>]*state='completed'[^>]*)/>",
            r"\1><result xmlns='urn:fluux:agent:0#execute' skill='x'/></task>",
            "<tasks ",
        ),
    ),
    "pages have no number, it says otherwise": ("COM-028", _first_page),
    "events without the revision": ("EVT-014", swap(r"(<events [^>]*) revision='\d+'", r"\1")),
    "parts from 1": ("ART-001", swap(r" part='(\d)'", r" part='1\1'", HEADLINE)),
    "each part is the last": ("ART-002", swap(r" last='false'", "", HEADLINE)),
    "a question without a form": (
        "INP-001",
        swap(r"<x xmlns='jabber:x:data'.*?</x>", "", HEADLINE),
    ),
    "a form of another type": (
        "INP-002",
        swap(r"<value>urn:fluux:agent:0#task</value>", "<value>other</value>", HEADLINE),
    ),
    "a question of another revision": (
        "INP-004",
        swap(r"(<input [^>]*)revision='\d+'", r"\1revision='77'", HEADLINE),
    ),
    "cancelled is told as running": (
        "CAN-001",
        swap(r"state='cancelled'", "state='running'", "<iq"),
    ),
    "get lets a result go": ("TSK-013", swap(r" retain-until='2", " retain-until='1", "<iq")),
    "a stranger is told": ("PRV-003", lambda xml: xml + _to_romeo(xml)),
    "cancelling is told as running": (
        "CAN-006",
        swap(r"state='cancell(ing|ed)'", "state='running'", "<iq"),
    ),
    "a step goes on after the end": ("CAN-008", lambda xml: xml + _later(xml)),
    "the end told is another": ("CAN-004", swap("state='cancelled'", "state='completed'", NORMAL)),
    "a question is forgotten": (
        "INP-011",
        swap(r"<conflict xmlns='urn:fluux", "<unknown-input xmlns='urn:fluux"),
    ),
    "what was said is forgotten": ("INP-009", swap("as blue as the sea", "blue", NORMAL)),
    "the last event is not kept": (
        "EVT-017",
        swap(r"<task [^>]*state='completed'.*?</task>", "", "<events "),
    ),
    "asks for a secret": ("INP-005", swap(r"type='text-single'", "type='text-private'", HEADLINE)),
    "a reference in parts": (
        "ART-005",
        swap(
            r"(<output [^>]*part='1'[^>]*>)[^<]*</output>",
            r"\1<file-sharing xmlns='urn:xmpp:sfs:0'/></output>",
        ),
    ),
    "tells who wants to hear nothing": ("FAC-012", lambda xml: xml + _still_tells(xml)),
    # Confirm
    "a peer gets what a person has to allow": (
        "CNF-001",
        swap("state='rejected'", "state='completed'", "<message"),
    ),
    "what did not run may not be repeated": (
        "CNF-057",
        swap(" repeatable='true'", "", "<confirmation-unavailable "),
    ),
    "a peer is denied": ("CNF-052", swap("<confirmation-unavailable ", "<denied ")),
    "somebody else is asked": ("CNF-006", lambda xml: xml + _asks_juliet(xml)),
    "a field that nobody knows": (
        "DSC-005",
        swap("state='rejected'", "state='failed'", "<message"),
    ),
    "two questions at once": ("CNF-016", swap(r"(<confirm .*?</confirm>)", r"\1\1", "<iq")),
    "asks again, about something else": ("CNF-017", lambda xml: xml + _another_shelf(xml)),
    "no form for a digest": ("CNF-019", swap("<invalid-param ", "<forbidden ")),
    "late is unknown": (
        "CNF-036",
        swap(r"<conflict xmlns='urn:fluux", "<unknown-confirmation xmlns='urn:fluux"),
    ),
    "lapsed is told as denied": ("CNF-038", swap(r"<[a-z]+-expired ", "<denied ", NORMAL)),
    "the lapsed comes back": ("RUL-008", swap("state='failed'", "state='accepted'", "<iq")),
    "questions without end": ("SEC-012", _accepted),
    "asked by a headline": ("CNF-008", swap(r"type='chat'", HEADLINE, CONFIRM)),
    "asked without a body": ("CNF-009", swap(r"<body.*?</body>", "", CONFIRM)),
    "asked without a time": ("CNF-011", swap(r"<expires>.*?</expires>", "", CONFIRM)),
    "asked without buttons": (
        "CNF-014",
        swap(r"<action xmlns='urn:xmpp:tmp:quick-response'[^>]*/>", "", CONFIRM),
    ),
    "asked about something else": (
        "CNF-018",
        swap(r">the archive</param>", ">the archives</param>", CONFIRM),
    ),
    "takes a yes for another question": ("CNF-044", swap(_WAITS, r"\1state='running'", "<iq")),
    "takes a yes for a new question": ("CNF-045", swap(_WAITS, r"\1state='running'", "<iq")),
    "does not ask back": ("CNF-046", swap(r"(?s)<message.*not sure.*</message>", "")),
    "takes any message for an answer": ("CNF-048", swap(_WAITS, r"\1state='running'", "<iq")),
    "takes a doubtful yes": ("CNF-024", swap(_WAITS, r"\1state='running'", "<iq")),
    "does not say what is cut": ("CNF-049", swap(r" \(first 500 of [^)]*\)", "", CONFIRM)),
    "shows what turns the writing": ("CNF-050", swap(r"\\u202e", "\u202e", CONFIRM)),
    "asks what nobody can read": ("CNF-051", swap("<too-big ", "<forbidden ")),
    "a denial does not say what helps": ("ERR-008", swap(r"(<denied [^>]*) helps='[a-z]+'", r"\1")),
    "denied is told as lapsed": ("CNF-039", swap(r"<denied ", "<confirmation-expired ")),
    "a strange question is forbidden": (
        "CNF-035",
        swap(r"<unknown-confirmation ", "<unknown-task "),
    ),
    # Grants
    "no grants": ("GRA-001", _no_receipts),
    "grants are not allowed": ("GRA-002", swap("<forbidden ", "<not-allowed ", "<invalid-grant")),
    "grants give rights": ("GRA-004", swap("<unknown-skill ", "<forbidden ")),
    "no algorithm": ("GRA-005", takes("malformed")),
    "patterns of any kind": ("GRA-006", takes("malformed")),
    "no other members": ("GRA-007", _no_receipts),
    "anybody signs the first": ("GRA-008", takes("wrong-key")),
    "anybody signs the second": ("GRA-009", takes("wrong-key")),
    "any parent": ("GRA-010", takes("wrong-parent")),
    "anybody passes on": ("GRA-011", takes("wrong-path")),
    "grants for another": ("GRA-012", takes("wrong-origin")),
    "skills grow": ("GRA-013", takes("wider-skills")),
    "grants grow old": ("GRA-014", takes("later-expiry")),
    "budgets of grants grow": ("GRA-015", takes("larger-budget")),
    "no depth": ("GRA-016", takes("too-deep")),
    "any path": ("GRA-017", takes("wrong-path")),
    "any origin": ("GRA-018", takes("wrong-origin")),
    "for everybody": ("GRA-019", takes("wrong-audience")),
    "for every skill": ("GRA-020", takes("skill-not-granted")),
    "any budget": ("GRA-021", takes("larger-budget")),
    "any deadline": ("GRA-022", takes("later-expiry")),
    "early grants": ("GRA-023", takes("not-yet-valid")),
    "other grants": ("GRA-026", swap("<conflict xmlns='urn:fluux", "<retry xmlns='urn:fluux")),
    "keys of nobody": ("GRA-027", another_letter(r"<key [^>]*>")),
    "keys under numbers": ("GRA-028", swap(r"<item id='[^']*'", "<item id='1'", "#keys")),
    "keys of the sender": ("GRA-029", takes("wrong-key")),
    "ended at once": ("GRA-032", swap("state='active'", "state='ended'", "<status")),
    "knows every grant": ("GRA-033", swap("<item-not-found ", "<forbidden ")),
    "revoked grants": ("GRA-035", takes("revoked")),
    "silence is consent": ("GRA-036", swap("<retry ", "<over-quota ")),
    "no receipt": ("GRA-037", swap("<receipt .*</receipt>", "")),
    "a receipt of nobody": ("GRA-038", another_letter(r"<receipt .*[.]")),
    # Commands
    "no form": ("FAC-002", swap(r"<x xmlns='jabber:x:data'.*?</x>", "", "<command")),
    "forms of another type": (
        "FAC-003",
        swap(r"<value>urn:fluux:agent:0#execute</value>", "<value>other</value>"),
    ),
    "nothing is required": ("FAC-009", swap(r"<required/>", "", "<command")),
    "long work is not told of": ("FAC-007", swap(r"<note.*?</note>", "", "<command")),
    "no reason": ("FAC-004", swap(r"<note.*?</note>", "", "<command")),
    # Plans
    "no id of the plan": ("PLN-010", swap(r"<output name='plan'.*?</output>", "", "plan_start")),
    "steps begin early": ("PLN-003", swap(r"(<step id='two'.*?)'waiting'", r"\1'running'")),
    "plans as chats": ("PLN-012", swap(HEADLINE, "type='chat'", "<plan ")),
    "lists without plans": ("PLN-013", swap(r"<plan .*?</plan>", "", "<tasks ")),
    "plans change unseen": ("PLN-014", swap(r"state='done'", "state='skipped'", "<iq")),
    "steps in another order": ("PLN-015", swap(r"(<step id='one'.*?/>)(<step .*?/>)", r"\2\1")),
    "running, but no task": ("PLN-018", swap(r"(<step .*?'running') task='\w*'", r"\1")),
    "too large a plan": ("PLN-006", lambda xml: _as_result(xml) if "<too-big " in xml else xml),
    "any order of steps": ("PLN-007", swap("is-error='true'", "is-error='false'", "plan_start")),
    "hidden skills in plans": ("PLN-008", swap("hidden", "secret", "is-error='true'")),
    "faults without words": ("PLN-009", swap(r"<output.*</output>", "", "is-error='true'")),
    "any revision": ("PLN-022", swap("is-error='true'", "is-error='false'", "plan_revise")),
    "done steps begin again": ("PLN-023", swap(r"( revision='2'.*?)'done'", r"\1'waiting'")),
    "removed steps go on": ("PLN-024", swap(r"'cancell\w*'", "'running'", "conformance.sleep'")),
    "steps go on after the end": ("PLN-021", swap(r"'cancelled' task", "'running' task", NORMAL)),
    "steps of their own accord": (
        "PLN-025",
        swap(r"(<step id='two'.*?)'waiting'", r"\1'done'", "<iq"),
    ),
    "approved with the plan": ("PLN-026", swap(r"(<step id='two'.*? task=)", r"\1'x' x=", "<iq")),
    "approved with another plan": (
        "PLN-027",
        swap("</plan>", "<step id='two' title='x' kind='call' state='done'/></plan>", "<iq"),
    ),
}


class Spoiling:
    """A stream whose incoming stanzas are rewritten, one at a time and whole."""

    def __init__(self, stream: Any, spoil: Spoil) -> None:
        self._stream = stream
        self._spoil = spoil
        self._kept = ""
        self.send = stream.send
        self.aclose = stream.aclose

    async def receive(self) -> bytes:
        """Give what came, up to the end of the last whole stanza."""
        while True:
            self._kept += (await self._stream.receive()).decode()
            # A stanza ends where the next begins; what nobody rewrites passes as it is.
            cut = [m.end() for m in re.finditer(r"</(?:iq|message|presence)>|/>", self._kept)]
            if "<iq" not in self._kept and "<message" not in self._kept:
                cut = [len(self._kept)]
            if not cut or not _whole(self._kept[: cut[-1]]):
                continue
            ready, self._kept = self._kept[: cut[-1]], self._kept[cut[-1] :]
            stanzas = re.split(r"(?=<(?:iq|message|presence) )", ready)
            return "".join(self._spoil(one) for one in stanzas).encode()


def _whole(text: str) -> bool:
    """Whether every stanza that begins in the text ends in it."""
    text = re.sub(r"<(iq|message|presence)( [^<>]*)?/>", "", text)
    begun = len(re.findall(r"<(?:iq|message|presence)[ >]", text))
    return begun == len(re.findall(r"</(?:iq|message|presence)>", text))


@asynccontextmanager
async def attached(peer: str | None = self_test.PEER) -> Any:
    """The installed agent; gives a function that waits for its next connection."""
    secret = self_test.new_secret()
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    port = listener.extra(SocketAttribute.local_port)
    put, take = anyio.create_memory_object_stream[Any](10)

    async def came(stream: Any) -> None:
        await put.send(stream)
        await anyio.sleep_forever()  # whoever took it closes it

    async with AsyncExitStack() as stack:
        await stack.enter_async_context(listener)
        group = await stack.enter_async_context(anyio.create_task_group())
        stack.callback(group.cancel_scope.cancel)
        stack.callback(put.close)
        stack.callback(take.close)
        group.start_soon(listener.serve, came)
        await stack.enter_async_context(self_test.attached("127.0.0.1", port, secret, peer))
        yield secret, take


async def judge(secret: str, stream: Any, words: list[str]) -> Run:
    driver = AcceptorDriver(
        self_test.DOMAIN,
        secret,
        caller="juliet@localhost",
        stranger="romeo@localhost",
        refused=self_test.REFUSED,
        stream=stream,
        hostile=True,
    )
    selection = select(words, SPECIFICATION, all_checks())
    return await run(
        Plan(self_test.DOMAIN, SPECIFICATION, selection, fixtures(), timeout=TIMEOUT_S), driver
    )


def told(found: Run) -> str:
    lines = [
        f"{one.name} {one.outcome.value}: {one.reason} {one.findings}"
        for one in found.results
        if one.outcome not in (Outcome.PASSED, Outcome.UNCLAIMED)
    ]
    return "\n".join(lines)


@pytest.mark.ports
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_what_is_spoiled_on_the_way_is_caught_and_the_requirement_named() -> None:
    missed: list[str] = []
    chosen = list(DEFECTS.items())[:: 1 if THOROUGH else 4]
    alone = [each for each in chosen if each[0] in WITHOUT_PEER]
    others = [each for each in chosen if each[0] not in WITHOUT_PEER]

    async def one_agent(waiting: list[Any], peer: str | None = self_test.PEER) -> None:
        async with attached(peer) as (secret, connections):
            while waiting:
                defect, (id_, spoil) = waiting.pop(0)
                with anyio.fail_after(300):
                    stream = Spoiling(await connections.receive(), spoil)
                    found = await judge(secret, stream, [id_, *PROVOKED_BY.get(id_, ())])
                assert not found.faults, told(found)
                if found.verdicts[id_].status not in (Status.BROKEN, Status.WARNING, Status.NOTE):
                    missed.append(f"{defect}: {id_} {found.verdicts[id_].status}\n{told(found)}")

    async with anyio.create_task_group() as group:
        for _ in range(AGENTS):
            group.start_soon(one_agent, others)
        for each in alone:  # an agent finds out once
            group.start_soon(one_agent, [each], None)
    assert not missed, "\n\n".join(missed)
