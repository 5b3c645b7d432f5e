"""The small agent with work that is under way: it delegates it as a task, and stands in between.

What its peer asks goes up to its principal, and what the principal says goes down; it keeps no
more than that takes. With no defect it passes all of Delegation; each name in `DEFECTS` turns one
thing wrong.
"""

import base64
import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import anyio
import rfc8785

from tests.conformance.small_further import DELEGATION, SELF, TEXT, FurtherAgent
from xep.binding import ContentError
from xep.fluux_agent import errors
from xep.fluux_agent.confirm import NAMESPACE as CONFIRM
from xep.fluux_agent.confirm import Action, Confirm, Decision
from xep.fluux_agent.execute import NAMESPACE as EXECUTE
from xep.fluux_agent.execute import Accepted, Execute
from xep.fluux_agent.task import NAMESPACE as TASK
from xep.fluux_agent.task import Cancel, Input, InputAnswer, Task
from xep.hashes import NAMESPACE as HASHES
from xep.stanza import IQ, Incoming

DEFECTS = {
    "cancels only itself": "DLG-016",
    "works past its deadline": "DLG-016",
    "cancels elsewhere": "COM-003",
    "questions stay below": "DLG-017",
    "questions under the peer's name": "DLG-017",
    "answers stay above": "DLG-017",
    "answers another question": "DLG-017",
    "confirmations stay below": "DLG-018",
    "approves beforehand": "DLG-018",
    "decisions stay above": "DLG-018",
    "decides in words": "DLG-019",
    "one thread for all": "DLG-027",
    "a thread of its own": "DLG-028",
    "no digest is needed": "DLG-029",
    "words of agents count": "DLG-029",
    "decides without a digest": "DLG-019",
    "hides who acts": "DLG-020",
    "does not name who acts": "DLG-032",
    "a digest of its own": "DLG-032",
    "leaves a parameter out": "DLG-020",
    "lets the peer speak": "SEC-003",
    "one language for all": "I18-002",
    "evaluates without an end": "SEC-011",
}
"""What is broken, and the identifier of the requirement that the kit names."""


def _bare(address: str | None) -> str:
    return (address or "").partition("/")[0]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass
class Work:
    """A task of this agent, and the one of the peer that it was passed on as."""

    id: str
    person: str
    peer: str
    thread: str | None
    lang: str | None
    theirs: str = ""
    state: str = "accepted"
    revision: int = 0
    ours_asked: str = ""
    asked: Input | Confirm | None = None


class DelegatingAgent(FurtherAgent):
    """The agent; `defect` names what it does wrong, or nothing."""

    further = (*FurtherAgent.further, TASK, CONFIRM)
    schemas = FurtherAgent.schemas | {
        "conformance.ask": {"question": TEXT},
        "conformance.erase": {"target": TEXT},
    }

    def __init__(self, defect: str = "") -> None:
        super().__init__(defect)
        self.works: list[Work] = []
        self._changed = anyio.Event()
        self._stuck = False

    async def _stanza(self, stanza: Incoming) -> None:
        if self._stuck:
            return
        parts: dict[str | None, Any] = {
            Cancel.xml.tag: self._cancel,
            InputAnswer.xml.tag: self._answered,
            Decision.xml.tag: self._decided,
        }
        part = parts.get(stanza.sole_child)
        if stanza.kind == "iq" and stanza.type == "set" and part is not None:
            await part(stanza)
            return
        if stanza.sole_child == Execute.xml.tag and await self._took(stanza):
            return
        if stanza.kind == "message" and await self._told(stanza):
            return
        await super()._stanza(stanza)

    # -- from the principal ----------------------------------------------------------------------

    async def _took(self, stanza: Incoming) -> bool:
        """Whether it was work to delegate as a task, which is done with then."""
        try:
            request = stanza.sole_payload(Execute)
        except ContentError:
            return False  # it is refused below
        if request.mode != "async" or request.delegation is not None:
            return await self._took_delegated(stanza, request)
        if request.skill != "conformance.delegate":
            return False
        params = {param.name: param.text for param in request.params}
        number = next(self._numbers)
        work = Work(f"t-{number}", stanza.sender or "", params["peer"], request.thread, stanza.lang)
        self.works.append(work)
        head = f"task='{work.id}' state='accepted' revision='0'"
        await self._reply(stanza, f"<accepted xmlns='{EXECUTE}' {head}/>")
        passed = (
            f"<delegation xmlns='{DELEGATION}' origin='{_bare(work.person)}' max-hops='4'>"
            f"<via>{SELF}</via></delegation>"
        )
        answer = await self._ask(
            work.peer, f"<execute xmlns='{EXECUTE}' skill='echo' mode='async'>{passed}</execute>"
        )
        accepted = answer.sole_payload(Accepted)
        work.theirs = accepted.task
        self._changed.set()
        self._changed = anyio.Event()
        if request.deadline is not None and self.defect != "works past its deadline":
            await anyio.sleep((request.deadline - datetime.now(UTC)).total_seconds())
            await self._end(work, "failed")
            await self._gone(work)
        return True

    async def _took_delegated(self, stanza: Incoming, request: Execute) -> bool:
        """Whether it was delegated work that asks something, which waits for the answer then."""
        delegated = request.mode == "async" and request.delegation is not None
        skill = request.skill.rpartition(".")[2]
        if not delegated or skill not in ("ask", "erase"):
            return False
        thread = None if self.defect == "a thread of its own" else request.thread
        number = next(self._numbers)
        work = Work(f"t-{number}", stanza.sender or "", "", thread, stanza.lang, theirs="none")
        self.works.append(work)
        head = f"task='{work.id}' state='accepted' revision='0'"
        await self._reply(stanza, f"<accepted xmlns='{EXECUTE}' {head}/>")
        if skill == "erase":
            asked = Confirm(
                id=f"p-{number}", action=Action(type="shelves.erase"), expires=datetime.now(UTC)
            )
            await self._confirm_up(work, asked, "")
            return True
        work.state, work.revision = "input-required", 1
        schema = '{"type": "object"}'
        await self._event(
            work,
            f"<input id='i-{number}' revision='1'><question xml:lang='en'>Which?</question>"
            f"<schema type='application/schema+json'>{schema}</schema></input>",
        )
        return True

    async def _cancel(self, stanza: Incoming) -> None:
        work = self._find(stanza.sole_payload(Cancel).id)
        await self._end(work, "cancelled")
        await self._reply(stanza, self._shown(work))
        await self._gone(work)

    async def _gone(self, work: Work) -> None:
        if self.defect == "cancels only itself" or not work.peer:
            return
        elsewhere = self.defect == "cancels elsewhere"
        to = work.peer.rpartition("@")[2] if elsewhere else work.peer
        await self._ask(to, f"<cancel xmlns='{TASK}' id='{work.theirs}'/>")

    async def _answered(self, stanza: Incoming) -> None:
        answer = stanza.sole_payload(InputAnswer)
        work = self._find(answer.task)
        assert isinstance(work.asked, Input)
        if self.defect == "evaluates without an end" and b"pattern" in bytes(
            work.asked.schema.json
        ):
            self._stuck = True
            return
        work.state, work.revision = "running", work.revision + 1
        await self._reply(stanza, self._shown(work))
        if self.defect == "answers stay above":
            return
        assert answer.params is not None
        json = escape(bytes(answer.params.json).decode())
        input_ = "another" if self.defect == "answers another question" else work.asked.id
        await self._ask(
            work.peer,
            f"<answer xmlns='{TASK}' task='{work.theirs}' input='{input_}'"
            f" revision='{work.asked.revision}'><params type='application/json'>{json}</params>"
            "</answer>",
        )

    async def _decided(self, stanza: Incoming) -> None:
        decision = stanza.sole_payload(Decision)
        work = next(one for one in self.works if one.ours_asked == decision.id)
        if not work.peer and decision.hash is None and self.defect != "no digest is needed":
            await self._send(
                IQ(
                    type="error",
                    id=stanza.id or "",
                    from_=stanza.to or "",
                    to=stanza.sender or "",
                    error=errors.malformed("the decision has no digest"),
                )
            )
            return
        if not work.peer:
            await self._reply(stanza, "")
            await self._end(work, "completed")
            return
        work.state, work.revision = "running", work.revision + 1
        await self._reply(stanza, "")
        if self.defect != "decisions stay above":
            await self._decide(work, decision.value)

    async def _decide(self, work: Work, value: str) -> None:
        assert isinstance(work.asked, Confirm)
        if self.defect == "decides in words":
            word = "yes" if value == "approve" else "no"
            head = f"from='{SELF}' to='{work.peer}' type='chat'"
            await self._raw(
                f"<message {head}><body>{word}</body><thread>{work.theirs}</thread></message>"
            )
            return
        assert work.asked.hash is not None
        digest = base64.b64encode(work.asked.hash.digest).decode()
        shown = f"<hash xmlns='{HASHES}' algo='sha-256'>{digest}</hash>"
        shown = "" if self.defect == "decides without a digest" else shown
        head = f"id='{work.asked.id}' value='{value}'"
        await self._ask(work.peer, f"<decision xmlns='{CONFIRM}' {head}>{shown}</decision>")

    # -- from the peer ---------------------------------------------------------------------------

    async def _told(self, stanza: Incoming) -> bool:
        """Whether a message was about work that was passed on."""
        if stanza.text_of("body") == "yes" and self.defect == "words of agents count":
            await self._end(self.works[-1], "completed")
            return True
        confirm = stanza.payload(Confirm)
        if confirm is not None:
            works = await self._passed_on_as(confirm.task)
            for work in works:
                await self._confirm_up(work, confirm, stanza.text_of("body") or "")
            return bool(works)
        event = stanza.payload(Task)
        works = [] if event is None else await self._passed_on_as(event.id)
        for work in works:
            assert event is not None
            if event.input is not None and self.defect != "questions stay below":
                await self._ask_up(work, event.input)
            elif event.state == "completed":
                await self._end(work, "completed")
        return bool(works)

    async def _passed_on_as(self, theirs: str | None) -> list[Work]:
        """The work that the peer calls so. Each stanza is taken by itself, and may be ahead."""
        while not any(one.theirs == theirs for one in self.works):
            if all(one.theirs for one in self.works):
                return []
            await self._changed.wait()
        return [one for one in self.works if one.theirs == theirs]

    async def _ask_up(self, work: Work, asked: Input) -> None:
        own = asked.id if self.defect == "questions under the peer's name" else f"i-{work.id}"
        work.asked, work.state, work.revision = asked, "input-required", work.revision + 1
        fits = [one.text for one in asked.questions if one.lang == work.lang]
        text = (fits or [asked.questions[0].text])[0]
        text = asked.questions[0].text if self.defect == "one language for all" else text
        schema = escape(bytes(asked.schema.json).decode())
        input_ = (
            f"<input id={quoteattr(own)} revision='{work.revision}'><question xml:lang='en'>{text}"
            f"</question><schema type='application/schema+json'>{schema}</schema></input>"
        )
        await self._event(work, input_, f"<body>{text}</body>" if work.thread else "")

    async def _confirm_up(self, work: Work, asked: Confirm, said: str) -> None:
        work.asked = asked
        if self.defect == "confirmations stay below":
            return
        if self.defect == "approves beforehand":
            await self._decide(work, "approve")
        work.ours_asked = f"c-{work.id}"
        params = {one.name: one.text for one in asked.action.params}
        if self.defect == "leaves a parameter out":
            params = {}
        expires = datetime.now(UTC) + timedelta(minutes=5)
        written = expires.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        digested = {
            "agent": SELF,
            "confirmation": work.ours_asked,
            "expires": written,
            "params": params,
            "principal": _bare(work.person),
            "skill": "conformance.delegate",
            "task": work.id,
            "version": "1.0.0",
        }
        digest = base64.b64encode(hashlib.sha256(rfc8785.dumps(digested)).digest()).decode()
        acting, skill = "", "conformance.delegate"
        if work.peer:  # the question of the peer is passed up
            skill = asked.action.type
            named_agent = self.defect != "does not name who acts"
            acting = f" agent='{work.peer}'" if named_agent else ""
            if asked.hash is not None and self.defect != "a digest of its own":
                digest = base64.b64encode(asked.hash.digest).decode()
        who = "" if self.defect == "hides who acts" else f"{work.peer} wants to do "
        body = f"{who}{asked.action.type} with {params}. Answer yes or no before {written}."
        body = f"{body} {said}" if self.defect == "lets the peer speak" else body
        named = "".join(f"<param name='{n}'>{escape(v)}</param>" for n, v in params.items())
        await self._raw(
            f"<message from='{SELF}' to='{_bare(work.person)}' type='chat'>"
            f"<body xml:lang='en'>{escape(body)}</body><thread>{work.thread or work.id}</thread>"
            f"<confirm xmlns='{CONFIRM}' id='{work.ours_asked}' task='{work.id}'"
            f" principal='{_bare(work.person)}'{acting}>"
            f"<action type='{skill}' version='1.0.0'>{named}</action>"
            f"<hash xmlns='{HASHES}' algo='sha-256'>{digest}</hash>"
            f"<expires>{written}</expires></confirm></message>"
        )

    # -- tasks -----------------------------------------------------------------------------------

    def _find(self, id_: str) -> Work:
        return next(one for one in self.works if one.id == id_)

    def _shown(self, work: Work, content: str = "") -> str:
        head = f"id='{work.id}' skill='conformance.delegate' state='{work.state}'"
        times = f"created='{_now()}' updated='{_now()}' retain-until='2190-01-01T00:00:00Z'"
        return f"<task xmlns='{TASK}' {head} revision='{work.revision}' {times}>{content}</task>"

    async def _event(self, work: Work, content: str = "", body: str = "") -> None:
        ended = work.state in ("completed", "failed", "cancelled")
        to, kind = (_bare(work.person), "normal") if ended else (work.person, "headline")
        thread = f"<thread>{escape(work.thread or work.id)}</thread>"
        await self._raw(
            f"<message from='{SELF}' to='{to}' type='{kind}'>{body}{thread}"
            f"{self._shown(work, content)}</message>"
        )

    async def _end(self, work: Work, state: str) -> None:
        if work.state in ("completed", "failed", "cancelled"):
            return
        work.state, work.revision = state, work.revision + 1
        await self._event(work)

    async def _reply(self, stanza: Incoming, content: str) -> None:
        await self._raw(
            f"<iq type='result' id={quoteattr(stanza.id or '')} from={quoteattr(stanza.to or '')}"
            f" to={quoteattr(stanza.sender or '')}>{content}</iq>"
        )
