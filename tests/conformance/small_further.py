"""The small agent with Delegation and Memory besides Core: both in the simplest way that holds.

With no defect it passes both profiles; each name in `DEFECTS` turns one thing wrong.
"""

import itertools
import re
from datetime import UTC, datetime
from typing import Any
from xml.etree.ElementTree import Element, fromstring, tostring
from xml.sax.saxutils import escape, quoteattr

import anyio

from tests.conformance.small_agent import DOMAIN, REFUSED, SCHEMAS, STRANGER, SmallAgent
from xep.binding import ContentError
from xep.fluux_agent import errors
from xep.fluux_agent.delegation import Delegation
from xep.fluux_agent.execute import NAMESPACE as EXECUTE
from xep.fluux_agent.execute import Execute
from xep.fluux_agent.memory import NAMESPACE as MEMORY
from xep.jid import JID
from xep.stanza import IQ, Incoming
from xep.stanza_error import StanzaError

DELEGATION = "urn:fluux:agent:0#delegation"
PUBSUB = "http://jabber.org/protocol/pubsub"
SELF = f"assistant@{DOMAIN}"
DEFECTS = {
    "any last via": "DLG-003",
    "goes in circles": "DLG-004",
    "any form": "DLG-023",
    "unknown is nothing": "DLG-025",
    "repeats something else": "DLG-026",
    "any number of hops": "DLG-005",
    "origins are no limit": "DLG-010",
    "the origin speaks": "SEC-014",
    "the path is new": "DLG-006",
    "passes on without an end": "DLG-007",
    "the trace is new": "DLG-008",
    "only the sender's skills": "DLG-009",
    "budgets grow": "DLG-013",
    "deadlines grow": "DLG-013",
    "no budgets": "DLG-014",
    "nothing was spent": "DLG-015",
    "failures as they came": "DLG-021",
    "some failures are lost": "DLG-021",
    "denials without what helps": "ERR-009",
    "items of another id": "MEM-005",
    "nodes of nobody": "MEM-001",
    "what is kept is hidden": "PRV-005",
    "nothing to retract": "MEM-002",
    "open to all": "MEM-003",
    "told nobody": "MEM-004",
    "versions stand still": "MEM-006",
    "writes over the person": "MEM-007",
    "only newer versions": "MEM-008",
    "forgets nothing": "MEM-009",
    "keeps for ever": "MEM-010",
    "the first word counts": "MEM-011",
    "one memory for all": "MEM-013",
    "skills under numbers": "SKL-015",
    "items of all skills": "SKL-016",
    "says nothing of new skills": "SKL-017",
    "says nothing of lost skills": "SKL-017",
    "what has timed out may be repeated": "SKL-002",
    "passes credentials on": "SEC-015",
    "names the device": "PRV-004",
    "obeys what it remembers": "MEM-012",
}
"""What is broken, and the identifier of the requirement that the kit names."""

TEXT = {"type": "string"}
_TRACE = re.compile(r"[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_LATE = "2190-01-01T00:00:00Z"
_PASSED_UP = {
    "loop": errors.loop,
    "hops-exceeded": errors.hops_exceeded,
    "denied": errors.denied,
    "deadline-expired": errors.deadline_expired,
    "budget-exhausted": errors.budget_exhausted,
    "outcome-unknown": errors.outcome_unknown,
}


class FurtherAgent(SmallAgent):
    """The agent; `defect` names what it does wrong, or nothing."""

    schemas = SCHEMAS | {
        "conformance.delegate": {"peer": TEXT, "text": TEXT},
        "conformance.spend": {"tokens": {"type": "integer"}},
        "conformance.remember": {"key": TEXT, "text": TEXT},
        "conformance.recall": {"key": TEXT},
        "conformance.reveal": {"shown": {"type": "boolean"}},
        "conformance.shy": {},
    }
    further = (DELEGATION, MEMORY, PUBSUB)

    def __init__(self, defect: str = "") -> None:
        super().__init__(defect)
        self._numbers = itertools.count(1)
        self._waiting: dict[str, tuple[anyio.Event, list[Incoming]]] = {}
        self.items: dict[str, dict[str, Element]] = {}
        self.used: dict[tuple[str, str], str] = {}
        self.subscribed: set[str] = set()
        self.watching: set[str] = set()
        self.revealed = False

    def _names(self) -> list[str]:
        return [one for one in super()._names() if self.revealed or one != "conformance.shy"]

    async def _stanza(self, stanza: Incoming) -> None:
        waiting = self._waiting.get(stanza.id or "")
        if stanza.kind == "iq" and stanza.type in ("result", "error") and waiting is not None:
            waiting[1].append(stanza)
            waiting[0].set()
            return
        await super()._stanza(stanza)

    async def _iq(self, stanza: Incoming, refused: bool) -> None:
        served = stanza.sole_child in (Execute.xml.tag, f"{{{PUBSUB}}}pubsub",
                                       f"{{{PUBSUB}#owner}}pubsub")  # fmt: skip
        if refused and self.defect == "the origin speaks" and DELEGATION in stanza.forward():
            refused = False
        if not served or refused:
            await super()._iq(stanza, refused)
            return
        head = {"id": stanza.id or "", "from_": stanza.to or DOMAIN, "to": stanza.sender or ""}
        try:
            content = await self._further(stanza)
        except StanzaError as error:
            await self._send(IQ(type="error", error=error, **head))
            return
        except ContentError as misfit:
            error = errors.malformed(str(misfit))
            await self._send(IQ(type="error", error=error, **head))
            return
        if content is None:
            await super()._iq(stanza, refused)
            return
        await self._raw(
            f"<iq type='result' id={quoteattr(head['id'])} from={quoteattr(head['from_'])}"
            f" to={quoteattr(head['to'])}>{content}</iq>"
        )

    async def _raw(self, xml: str) -> None:
        async with self._turn:
            await self._stream.send(self._wire.send(xml.encode()))

    async def _further(self, stanza: Incoming) -> str | None:
        person = (stanza.sender or "").partition("/")[0]
        if stanza.sole_child != Execute.xml.tag:
            tree = fromstring(stanza.forward())[0]
            return await self._pubsub(tree, person)
        request = stanza.sole_payload(Execute)
        params = {param.name: param.text for param in request.params}
        if request.delegation is not None:
            self._delegated(request, person)
        match request.skill.rpartition(".")[2]:
            case "delegate":
                return await self._delegate(request, params, stanza)
            case "spend":
                most = request.delegation.budget_tokens if request.delegation else None
                over = most is not None and int(params["tokens"]) > most
                if over and self.defect != "no budgets":
                    raise errors.budget_exhausted()
                return _result("spent")
            case "remember":
                return await self._remember(person, params["key"], params["text"])
            case "recall":
                return _result(self._recall(person, params["key"]))
            case "reveal":
                await self._reveal(params["shown"] == "true")
                return _result("")
        return _result(params.get("text", "")) if request.delegation is not None else None

    # -- delegation ------------------------------------------------------------------------------

    def _delegated(self, request: Execute, sender: str) -> None:
        assert request.delegation is not None
        path = [str(one) for one in request.delegation.via]
        if self.defect != "any form":
            _check_form(request.delegation)
        if path[-1] != sender and self.defect not in ("any last via", "the origin speaks"):
            raise errors.malformed("the last <via/> is the sender")
        if {SELF, DOMAIN} & set(path) and self.defect != "goes in circles":
            raise errors.loop()
        if len(path) > request.delegation.max_hops and self.defect != "any number of hops":
            raise errors.hops_exceeded()
        origin = str(request.delegation.origin)
        known = origin == STRANGER.partition("/")[0]
        if self.defect == "only the sender's skills" and known:
            raise errors.unknown_skill()
        if origin == REFUSED and self.defect != "origins are no limit":
            raise errors.unknown_skill()

    async def _delegate(self, request: Execute, params: dict[str, str], stanza: Incoming) -> str:
        given, broken = request.delegation, self.defect
        if given is None:
            origin = JID.parse((stanza.sender or "").partition("/")[0])
            given = Delegation(origin=origin, max_hops=4, via=())
        path = [str(one) for one in given.via]
        peer = params["peer"].partition("/")[0]
        if broken != "passes on without an end":
            if peer in path:
                raise errors.loop()
            if len(path) + 1 > given.max_hops:
                raise errors.hops_exceeded()
        path = [SELF] if broken == "the path is new" else [*path, SELF]
        trace = (given.trace or "").split("-")
        if len(trace) == 4:
            trace[2] = "1111111111111111"
            trace[1] = "2" * 32 if broken == "the trace is new" else trace[1]
        tokens = (given.budget_tokens or 0) + (1 if broken == "budgets grow" else -1)
        limits = f" max-hops='{given.max_hops}'"
        limits += f" trace='{'-'.join(trace)}'" if given.trace else ""
        if given.budget_tokens is not None:
            limits += f" budget-tokens='{tokens}'"
        if given.budget_usd is not None:
            limits += f" budget-usd='{given.budget_usd}'"
        via = "".join(f"<via>{one}</via>" for one in path)
        passed = (
            f"<delegation xmlns='{DELEGATION}' origin='{given.origin}'{limits}>{via}</delegation>"
        )
        if broken == "passes credentials on":
            passed += "".join(re.findall(r"<credentials .*</credentials>", stanza.forward()))
        if broken == "names the device":
            passed += f"<param name='for'>{escape(stanza.sender or '')}</param>"
        number = next(self._numbers)
        thread = "ours" if broken == "one thread for all" else f"thread-{number}"
        end = request.deadline.isoformat().replace("+00:00", "Z") if request.deadline else _LATE
        end = _LATE if broken == "deadlines grow" else end
        head = f"skill='echo' request='r-{number}' thread='{thread}' deadline='{end}'"
        answer = await self._ask(
            params["peer"], f"<execute xmlns='{EXECUTE}' {head}>{passed}</execute>"
        )
        if answer.type == "error" and "urn:fluux:agent:0#errors" not in answer.forward():
            if broken == "repeats something else":
                head = head.replace(f"r-{number}", f"r-{number}-again")
            answer = await self._ask(
                params["peer"], f"<execute xmlns='{EXECUTE}' {head}>{passed}</execute>"
            )
        text = answer.forward()
        if answer.type == "error":
            raise self._error_of(text)
        usage = "<usage tokens-in='41' tokens-out='3'/>"
        if "<usage" not in text and given.budget_tokens and broken != "unknown is nothing":
            usage = f"<usage tokens-in='{tokens}' cost-usd='{given.budget_usd or 0}'/>"
        return _result("done", "" if broken == "nothing was spent" else usage)

    def _error_of(self, answer: str) -> StanzaError:
        if self.defect == "failures as they came":
            return errors.forbidden("The peer said so.")
        for own, made in _PASSED_UP.items():
            lost = self.defect == "some failures are lost" and own == "outcome-unknown"
            if f"<{own} " in answer and not lost:
                keeps = "helps='approval'" in answer and self.defect != "denials without what helps"
                return errors.denied("approval") if own == "denied" and keeps else made()
        repeatable = self.defect == "what has timed out may be repeated"
        return errors.remote_failure(repeatable=repeatable)

    async def _ask(self, to: str, payload: str) -> Incoming:
        id_ = f"ask-{next(self._numbers)}"
        came = anyio.Event()
        found: list[Incoming] = []
        self._waiting[id_] = (came, found)
        await self._raw(
            f"<iq type='set' id='{id_}' from='{SELF}' to={quoteattr(to)}>{payload}</iq>"
        )
        await came.wait()
        return found[0]

    # -- what is offered -------------------------------------------------------------------------

    async def _reveal(self, shown: bool) -> None:
        self.revealed = shown
        silent = "says nothing of new skills" if shown else "says nothing of lost skills"
        if self.defect == silent:
            return
        inside = (
            "<item id='conformance.shy'><skill xmlns='urn:fluux:agent:0#skills'"
            " name='conformance.shy' version='1.0.0'/></item>"
            if shown
            else "<retract id='conformance.shy'/>"
        )
        for person in self.watching:
            await self._raw(
                f"<message from='{SELF}' to='{person}' type='headline'>"
                f"<event xmlns='{PUBSUB}#event'><items node='urn:fluux:agent:0#skills'>{inside}"
                "</items></event></message>"
            )

    # -- memory ----------------------------------------------------------------------------------

    async def _message(self, stanza: Incoming) -> None:
        person = (stanza.sender or "").partition("/")[0]
        for item in self.items.get(person, {}).values():
            told = re.search(r"key = ([\w.-]+\w)", "".join(item.itertext()))
            if told and self.defect == "obeys what it remembers":
                self.counts[told[1]] = self.counts.get(told[1], 0) + 1
        await super()._message(stanza)
        said = stanza.text_of("body")
        if said is not None and not said.startswith("/"):
            head = f"from='{stanza.to}' to={quoteattr(stanza.sender or '')} type='chat'"
            await self._raw(f"<message {head}><body>I understand /help.</body></message>")

    async def _remember(self, person: str, key: str, text: str) -> str:
        node = self.items.setdefault(person, {})
        before = node.get(key)
        version = int(before[0].get("version", "0")) if before is not None else 0
        version += 0 if self.defect == "versions stand still" else 1
        if self.defect == "writes over the person" and before is not None:
            version = 2
        id_ = f"x-{key}" if self.defect == "items of another id" else key
        node[id_] = _item(id_, key, text, version)
        self.used.setdefault((person, key), text)
        if person in self.subscribed and self.defect != "told nobody":
            space = f"{PUBSUB}#event"
            items = f"<items node='{MEMORY}/{person}'><item id='{key}'/></items>"
            await self._raw(
                f"<message from='{SELF}' to='{person}' type='headline'>"
                f"<event xmlns='{space}'>{items}</event></message>"
            )
        return _result("remembered")

    def _recall(self, person: str, key: str) -> str:
        if self.defect in ("forgets nothing", "the first word counts"):
            kept = self.used.get((person, key))
            if kept is not None:
                return kept
        people = list(self.items) if self.defect == "one memory for all" else [person]
        for one in people:
            self._expire(one)
            item = self.items.get(one, {}).get(key)
            if item is not None:
                return "".join(item.itertext())
        return ""

    def _expire(self, person: str) -> None:
        if self.defect == "keeps for ever":
            return
        for id_, item in list(self.items.get(person, {}).items()):
            expires = item[0].get("expires")
            if expires and datetime.fromisoformat(expires) <= datetime.now(UTC):
                del self.items[person][id_]

    async def _pubsub(self, tree: Element, person: str) -> str:
        command = tree[0]
        name, node = command.tag.rpartition("}")[2], command.get("node", "")
        if node == "urn:fluux:agent:0#skills" and name == "items":
            return self._skill_items()
        if node == "urn:fluux:agent:0#skills":
            watch = self.watching.add if name == "subscribe" else self.watching.discard
            watch(command.get("jid", "").partition("/")[0])
            return ""
        owner = node.rpartition("/")[2]
        if owner != person and self.defect != "open to all":
            raise StanzaError("forbidden", "That is another's.")
        if self.defect in ("nodes of nobody", "what is kept is hidden"):
            raise StanzaError("item-not-found", "There is no such node.")
        self._expire(owner)
        node_items = self.items.setdefault(owner, {})
        match name:
            case "items":
                shown = "".join(tostring(one, "unicode") for one in node_items.values())
                return _items(node, shown)
            case "publish":
                item = command[0]
                key = item.get("id", "")
                before = node_items.get(key)
                older = before is not None and int(item[0].get("version", "0")) <= int(
                    before[0].get("version", "0")
                )
                if older and self.defect == "only newer versions":
                    raise StanzaError("conflict", "That is old.")
                node_items[key] = item
                self.used.setdefault((owner, key), "".join(item.itertext()))
            case "retract" | "purge" if self.defect == "nothing to retract":
                raise StanzaError("not-allowed", "It stays.")
            case "retract":
                node_items.pop(command[0].get("id", ""), None)
            case "purge":
                node_items.clear()
            case "subscribe":
                self.subscribed.add(command.get("jid", "").partition("/")[0])
        return ""

    def _skill_items(self) -> str:
        names = self._names()
        if self.defect == "items of all skills":
            names = [*names, "conformance.hidden"]
        if self.defect == "skills under numbers":
            names = [str(number) for number, _ in enumerate(names)]
        items = "".join(f"<item id='{name}'/>" for name in names)
        return _items("urn:fluux:agent:0#skills", items)


def _check_form(given: Delegation) -> None:
    numbers = (given.max_hops, given.budget_usd or 0, given.budget_tokens or 0)
    trace = given.trace is None or _TRACE.fullmatch(given.trace)
    addresses = (given.origin, *given.via)
    if min(numbers) < 0 or not trace or len(given.via) > 16 or any(a.resource for a in addresses):
        raise errors.malformed("the delegation cannot be true")


def _items(node: str, items: str) -> str:
    return f"<pubsub xmlns='{PUBSUB}'><items node={quoteattr(node)}>{items}</items></pubsub>"


def _item(id_: str, key: str, text: str, version: int) -> Any:
    return fromstring(
        f"<item xmlns='{PUBSUB}' id={quoteattr(id_)}><memory xmlns='{MEMORY}' key={quoteattr(key)}"
        f" version='{version}'><content>{escape(text)}</content></memory></item>"
    )


def _result(text: str, usage: str = "") -> str:
    return (
        f"<result xmlns='{EXECUTE}' skill='conformance.echo'><output name='result'>{escape(text)}"
        f"</output>{usage}</result>"
    )
