"""An agent of its own making that serves Core: small, in memory, and broken on request.

It stands at the other end of the kit's acceptor. It shares nothing with the component but the
wire; with no defect it passes all of Core, and each name in `broken.DEFECTS` turns one thing wrong.
"""

import hashlib
import math
import re
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any

import anyio
import msgspec
from anyio.streams.stapled import StapledObjectStream

from xep.binding import ContentError, Payload
from xep.component_states import State
from xep.component_stream import ComponentStream, HandshakeAccepted
from xep.data_forms import Field, Form
from xep.disco import Feature, Identity, InfoQuery, Item, ItemsQuery
from xep.fluux_agent import errors
from xep.fluux_agent.execute import Execute, Output, Result
from xep.fluux_agent.skills import (
    NAMESPACE,
    Annotations,
    Description,
    ParamDescription,
    Schema,
    SkillDescription,
    SkillsQuery,
    Title,
)
from xep.jid import JID
from xep.result_sets import page_answer, page_bounds
from xep.stanza import IQ, Incoming, Message
from xep.stanza_error import StanzaError
from xep.stanza_stream import StanzaReceived
from xep.stream import StanzaSkipped, StreamLimits, StreamOpened

DOMAIN = "agent.example.net"
SECRET = "secret"
CALLER = "juliet@example.net"
STRANGER = "romeo@example.net"
REFUSED = "mallory@elsewhere.example"
SHARE = 8
_INTEGER = re.compile(r"[+-]?\d+")
_IDENTIFIER = re.compile(r"[A-Za-z0-9._~-]{1,128}")
_HELP = {"en": "I understand /help.", "de": "Ich verstehe /help."}
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}

_INT = {"type": "integer"}
_TEXT = {"type": "string"}
SCHEMAS: dict[str, dict[str, Any]] = {
    "conformance.add": {"a": _INT, "b": _INT},
    "conformance.big": {"bytes": _INT},
    "conformance.count": {"key": _TEXT},
    "conformance.echo": {"text": _TEXT},
    "conformance.fail": {"message": _TEXT},
    "conformance.sleep": {"seconds": {"type": "number"}},
    "conformance.types": {
        "colour": {"type": "string", "enum": ["red", "green", "blue"]},
        "flag": {"type": "boolean"},
        "ratio": {"type": "number"},
        "words": {"type": "array", "items": _TEXT},
        "note": _TEXT,
    },
}
OPTIONAL = frozenset({"words", "note"})
HARMLESS = frozenset({"add", "echo", "fail", "sleep", "types", "big"})


class Record:
    """What came of a request, once it is there."""

    def __init__(self, content: Any) -> None:
        self.content = content
        self.outcome: Any = None
        self.ended = anyio.Event()

    def end(self, outcome: Any) -> None:
        self.outcome = outcome
        self.ended.set()


class SmallAgent:
    """The agent; `defect` names what it does wrong, or nothing."""

    schemas = SCHEMAS
    further: tuple[str, ...] = ()  # features beyond Core

    def __init__(self, defect: str = "") -> None:
        self.defect = defect
        self.counts: dict[str, int] = {}
        self.records: dict[tuple[str, ...], Record] = {}
        self.under_way: dict[str, int] = {}
        self.ready = anyio.Event()
        self._turn = anyio.Lock()
        self._wire = ComponentStream(
            DOMAIN, SECRET, StreamLimits(bytes=65536, depth=32, elements=500)
        )

    # -- the stream ------------------------------------------------------------------------------

    async def serve(self, stream: Any) -> None:
        """Talk until the stream ends."""
        self._stream = stream
        await stream.send(self._wire.open())
        async with anyio.create_task_group() as group:
            while True:
                try:
                    data = await stream.receive()
                except (anyio.EndOfStream, anyio.ClosedResourceError):
                    group.cancel_scope.cancel()
                    return
                for event in self._wire.receive(data):
                    match event:
                        case StreamOpened() if self._wire.state is State.OPENED:
                            await stream.send(self._wire.handshake())
                        case HandshakeAccepted():
                            self.ready.set()
                        case StanzaReceived(stanza=stanza):
                            group.start_soon(self._stanza, stanza)
                        case StanzaSkipped(tag=tag) if tag == "{jabber:client}iq":
                            await self._skipped(event)
                        case _:
                            pass

    async def _send(self, stanza: IQ | Message) -> None:
        async with self._turn:
            with suppress(anyio.BrokenResourceError):  # the kit has what it wants, and is gone
                for xml in self._spoiled(stanza.encode()):
                    await self._stream.send(self._wire.send(xml.encode()))

    def _spoiled(self, xml: str) -> list[str]:
        """What goes out, with the defects that are a matter of spelling."""
        is_error = " type='error'" in xml
        match self.defect:
            case "double reply" if xml.startswith("<iq"):
                return [xml, xml]
            case "reply to the wrong full JID" if xml.startswith("<iq"):
                return [re.sub(r" to='([^'/]*)/[^']*'", r" to='\1/elsewhere'", xml, count=1)]
            case "reply from the domain" if xml.startswith("<iq"):
                return [xml.replace(f"from='assistant@{DOMAIN}'", f"from='{DOMAIN}'", 1)]
            case "errors without a language" if is_error:
                return [xml.replace(" xml:lang='en'", "")]
            case "titles without a language":
                return [re.sub(r"<title xml:lang='en'", "<title", xml)]
            case "wrong error type" if is_error:
                return [xml.replace("<error type='modify'", "<error type='cancel'")]
            case "wrong stanza condition" if "<invalid-param" in xml:
                return [xml.replace("<bad-request ", "<not-acceptable ")]
            case "two conditions" if "<unknown-skill" in xml:
                own = "<malformed xmlns='urn:fluux:agent:0#errors'/></error>"
                return [xml.replace("</error>", own)]
            case "refusal without retry" if is_error:
                return [re.sub(r"<retry [^>]*/>", "", xml)]
            case "traceback in the error" if is_error:
                text = "Traceback (most recent call last):\n</text>"
                return [xml.replace("</text>", text)]
            case "no set" if "urn:fluux:agent:0#skills" in xml:
                return [re.sub(r"<set xmlns='http://jabber.org/protocol/rsm'.*</set>", "", xml)]
            case _:
                return [xml]

    async def _skipped(self, event: StanzaSkipped) -> None:
        if self.defect == "no answer to what is too big" or not event.from_:
            return
        error = errors.malformed("too big") if self.defect == "too big is malformed" else None
        error = error or errors.too_big()
        to = event.to or DOMAIN
        await self._send(IQ(type="error", id=event.id or "", from_=to, to=event.from_, error=error))

    async def _stanza(self, stanza: Incoming) -> None:
        refused = (stanza.sender or "").startswith(REFUSED)
        if stanza.kind == "iq" and stanza.type in ("get", "set"):
            await self._iq(stanza, refused)
        elif stanza.kind == "message" and (not refused or self.defect == "answers the refused"):
            await self._message(stanza)

    # -- IQs -------------------------------------------------------------------------------------

    async def _iq(self, stanza: Incoming, refused: bool) -> None:
        payload: Payload | None = None
        error: StanzaError | None = None
        try:
            payload = await self._answer(stanza, refused)
        except StanzaError as raised:
            error = raised
        except ContentError as misfit:
            error = errors.malformed(str(misfit))
        if self.defect == "silent to odd IQs" and stanza.sole_child is None:
            return
        type_ = "result" if error is None else "error"
        head = {"id": stanza.id or "", "from_": stanza.to or DOMAIN, "to": stanza.sender or ""}
        await self._send(IQ(type=type_, payload=payload, error=error, **head))

    async def _answer(self, stanza: Incoming, refused: bool) -> Payload | None:
        if refused and not (self.defect == "the refused may look" and stanza.type == "get"):
            raise StanzaError("service-unavailable", "Nothing here is for you.")
        unavailable = StanzaError("service-unavailable", "Nothing here serves that.")
        if self.defect == "unknown payloads are not implemented":
            unavailable = StanzaError("feature-not-implemented", "Nothing here serves that.")
        if stanza.sole_child is None:
            raise errors.malformed("an IQ holds exactly one element")
        routes: dict[tuple[str, str], Callable[[Any, Incoming], Any]] = {
            ("get", InfoQuery.xml.tag): self._info,
            ("get", ItemsQuery.xml.tag): self._items,
            ("get", SkillsQuery.xml.tag): self._skills,
            ("set", Execute.xml.tag): self._execute,
        }
        route = routes.get((stanza.type, stanza.sole_child))
        if route is None:
            raise unavailable
        classes = {c.xml.tag: c for c in (InfoQuery, ItemsQuery, SkillsQuery, Execute)}
        answer = route(stanza.sole_payload(classes[stanza.sole_child]), stanza)
        return await answer if isinstance(answer, Awaitable) else answer

    def _info(self, query: InfoQuery, stanza: Incoming) -> InfoQuery:
        parts = ["urn:fluux:agent:0", "urn:fluux:agent:0#execute", "urn:fluux:agent:0#skills"]
        if self.defect == "lists what it does not serve":
            parts.append("urn:fluux:agent:0#confirm")
        if self.defect == "does not list execution":
            parts.remove("urn:fluux:agent:0#execute")
        parts += self.further
        fields = {
            "FORM_TYPE": "urn:fluux:agent:0",
            "agent_name": "Small",
            "software": "small",
            "protocol_version": "0",
            "max_stanza_bytes": "65536",
            "inline_seconds": "1",
            "requests_per_principal": str(SHARE),
            "replay_seconds": "3600",
        }
        if self.defect == "a field is missing":
            del fields["requests_per_principal"]
        form = Form(
            type="result",
            fields=tuple(
                [
                    Field(var=name, values=(value,), type="hidden" if name == "FORM_TYPE" else None)
                    for name, value in fields.items()
                ]
            ),
        )
        component = stanza.to == DOMAIN
        category, type_ = ("component", "generic") if component else ("client", "bot")
        if self.defect == "wrong identity":
            category = "gateway"
        return InfoQuery(
            identities=(Identity(category=category, type=type_),),
            features=tuple([Feature(var=one) for one in parts]),
            forms=(form,),
        )

    def _items(self, query: ItemsQuery, stanza: Incoming) -> ItemsQuery:
        here = JID.parse(stanza.to or DOMAIN)
        if query.node == NAMESPACE:
            names = self._names()
            if self.defect == "items in another order":
                names = names[::-1]
            prefix = NAMESPACE if self.defect != "other nodes of items" else "skills"
            items = [Item(jid=here, node=f"{prefix}/{name}", name=name) for name in names]
            return ItemsQuery(
                node=NAMESPACE, items=tuple(items), page=page_answer(names, 0, len(names))
            )
        agent = JID.parse(f"assistant@{DOMAIN}")
        hosted = (Item(jid=agent),) if stanza.to == DOMAIN else ()
        if self.defect == "does not list its agents":
            hosted = ()
        return ItemsQuery(items=hosted, page=page_answer([str(agent)], 0, len(hosted)))

    # -- skills ----------------------------------------------------------------------------------

    def _names(self) -> list[str]:
        names = sorted(self.schemas)
        return [*names, "conformance.hidden"] if self.defect == "lists the hidden" else names

    def _describe(self, name: str, whole: bool) -> SkillDescription:
        properties = self.schemas.get(name, {})
        required = [one for one in properties if one not in OPTIONAL]
        schema = {"type": "object", "properties": properties, "required": required}
        if self.defect == "schema of no type":
            del schema["type"]
        if self.defect == "schema that does not match":
            schema["properties"] = dict.fromkeys(properties, _TEXT)
        json = msgspec.Raw(msgspec.json.encode(schema))
        plain = name.rpartition(".")[2] in HARMLESS
        return SkillDescription(
            name=name,
            version="1.0.0",
            titles=(Title(text=name.rpartition(".")[2].title(), lang="en"),),
            descriptions=(Description(text=f"Does {name}.", lang="en"),),
            params=tuple(
                [
                    ParamDescription(name=n, type=s["type"], required=n in required)
                    for n, s in properties.items()
                ]
            ),
            annotations=Annotations(
                read_only=plain, destructive=False, idempotent=plain, open_world=False
            ),
            schemas=(Schema(direction="input", json=json),) if whole else (),
        )

    def _skills(self, query: SkillsQuery, stanza: Incoming) -> SkillsQuery:
        names = self._names()
        version = hashlib.sha256(repr(self.schemas).encode()).hexdigest()[:16]
        if self.defect == "a version per question" and query.search is not None:
            version = "searched"
        if query.version == version and self.defect != "never unchanged":
            return SkillsQuery(version=version, ttl=60, unchanged=True)
        if query.skill is not None:
            if query.skill == "conformance.hidden" and self.defect == "hidden is forbidden":
                raise StanzaError("forbidden", "No.", application=(errors.Forbidden(),))
            if query.skill not in self.schemas:
                raise errors.unknown_skill()
            names = [query.skill]
        if query.search is not None:
            fold = str if self.defect == "a search that minds the case" else str.casefold
            words = [fold(word) for word in query.search.split()]
            test = any if self.defect == "a search for any word" else all
            names = [
                n
                for n in names
                if test(w in fold(f"{n} {n.rpartition('.')[2].title()} Does {n}.") for w in words)
            ]
        page = query.page
        if page is not None and self.defect == "negative pages" and (page.max or 0) < 0:
            page = None
        if page is not None and page.after and self.defect == "pages that overlap":
            page = msgspec.structs.replace(page, after=page.after[:-1])
        start, stop = page_bounds(names, page, 50)
        shown = names[start:stop]
        if self.defect == "skills in another order":
            shown = shown[::-1]
        whole = query.skill is not None or self.defect == "schemas in the list"
        whole = whole or (query.schemas and self.defect != "schemas of one skill at a time")
        whole = whole and self.defect != "no schema"
        return SkillsQuery(
            version=version,
            ttl=60,
            skills=tuple([self._describe(name, whole) for name in shown]),
            page=page_answer(names, start, stop),
        )

    # -- execution -------------------------------------------------------------------------------

    async def _execute(self, request: Execute, stanza: Incoming) -> Result:
        self._well_formed(request)
        if request.skill not in self.schemas:
            raise errors.unknown_skill()
        key, content = self._key(request, stanza), self._content(request)
        if key in self.records and self.defect != "a repetition runs again":
            before = self.records[key]
            if before.content != content and self.defect != "no conflicts":
                raise errors.conflict("This id was used for another request.")
            if before.content == content:
                await before.ended.wait()
                return _result(before.outcome)
        record = Record(content)
        if self.defect == "a refusal is recorded":
            self.records[key] = record
        try:
            self._admit(request, stanza)
            params = self._params(request)
        except StanzaError as error:
            record.end(error)
            raise
        if not (self.defect == "failures are not recorded" and "fail" in request.skill):
            self.records[key] = record
        return await self._within_share(request, stanza, params, record)

    def _well_formed(self, request: Execute) -> None:
        for one in (request.request, request.context):
            wrong = one is not None and not _IDENTIFIER.fullmatch(one)
            if wrong and self.defect != "any identifier":
                raise errors.malformed("an identifier is of another form")
        if request.json_params is not None:
            value = msgspec.json.decode(request.json_params.json)
            if not isinstance(value, dict) and self.defect != "params may be anything":
                raise errors.malformed("params: expected an object")
        if request.skill == "conformance.hidden":
            for param in request.params:
                if self.defect == "hidden checks parameters first":
                    raise errors.invalid_param(param.name, "unknown")

    async def _within_share(
        self, request: Execute, stanza: Incoming, params: dict[str, Any], record: "Record"
    ) -> Result:
        principal = (stanza.sender or "").partition("/")[0]
        if self.defect == "one share for all":
            principal = "everybody"
        if self.under_way.get(principal, 0) >= SHARE and self.defect != "no share":
            del self.records[self._key(request, stanza)]
            raise errors.busy(2)
        self.under_way[principal] = self.under_way.get(principal, 0) + 1
        try:
            record.end(await self._run(request, params))
        except StanzaError as error:
            record.end(error)
        finally:
            self.under_way[principal] -= 1
        return _result(record.outcome)

    def _key(self, request: Execute, stanza: Incoming) -> tuple[str, ...]:
        sender = stanza.sender or ""
        bare = sender.partition("/")[0]
        match self.defect:
            case "records are found by strangers" if request.request:
                return ("anybody", request.request)
            case "request ids belong to a resource" if request.request:
                return (sender, stanza.to or "", request.request)
            case "IQ ids belong to the account" if not request.request:
                return (bare, stanza.to or "", "iq", stanza.id or "")
        claimed = re.search(r" principal='([^'/]*)", stanza.forward())
        if self.defect == "believes what is claimed" and claimed:
            bare = claimed[1]
        if request.request:
            return (bare, stanza.to or "", "request", request.request)
        content = repr(self._content(request))
        if self.defect == "IQ ids are keys of any content":
            content = ""
        return (sender, stanza.to or "", "iq", stanza.id or "", content)

    def _content(self, request: Execute) -> Any:
        texts = {name: tuple(values) for name, values in request.texts().items()}
        if self.defect == "the order of parameters is content":
            texts = {str(i): (one.name, one.text) for i, one in enumerate(request.params)}
        head = (
            request.skill,
            request.version,
            request.mode,
            request.priority,
            request.context,
            request.thread,
        )
        if self.defect == "the mode is no content":
            head = (request.skill, request.priority, request.context, request.thread)
        json = None if request.json_params is None else bytes(request.json_params.json)
        return (head, request.deadline, sorted(texts.items()), json)

    def _admit(self, request: Execute, stanza: Incoming) -> None:
        broken = self.defect
        if broken == "parameters before the deadline":
            self._params(request)
        if request.delegation is not None and broken != "takes any delegation":
            raise errors.delegation_unavailable()
        if request.earlier and broken != "any earlier task":
            raise errors.unknown_task()
        if request.version not in (None, "1.0.0") and broken != "any version":
            raise errors.unknown_skill()
        if request.mode == "async" and broken != "async runs at once":
            raise errors.mode_unavailable("There are no tasks here.")
        deadline = request.deadline
        if deadline is not None and broken == "deadlines without offsets":
            deadline = self._naive(stanza)
        if deadline is not None and deadline <= datetime.now(UTC) and broken != "no deadlines":
            raise errors.deadline_expired()

    def _naive(self, stanza: Incoming) -> datetime:
        found = re.search(r"deadline='([^']{19})", stanza.forward())
        assert found is not None
        return datetime.fromisoformat(found[1]).replace(tzinfo=UTC)

    def _params(self, request: Execute) -> dict[str, Any]:
        broken = self.defect
        properties = self.schemas[request.skill]
        found: dict[str, Any] = {}
        if request.json_params is not None:
            value = msgspec.json.decode(request.json_params.json)
            found |= value if isinstance(value, dict) else {}
        for name, texts in request.texts().items():
            if name in found and broken != "text beats JSON":
                raise errors.malformed(f"{name} is given both as text and as JSON")
            if name not in properties:
                if broken == "unknown parameters are ignored":
                    continue
                raise errors.invalid_param(name, "there is no such parameter")
            if properties[name]["type"] == "array":
                one = broken == "an array of one is a text" and len(texts) == 1
                found[name] = texts[0] if one else list(texts)
                continue
            if len(texts) > 1 and broken != "the last of several counts":
                raise errors.invalid_param(name, "it is given more than once")
            found[name] = self._converted(name, properties[name], texts[-1])
        for name, value in found.items():
            if name not in properties:
                raise errors.invalid_param(name, "there is no such parameter")
            if properties[name]["type"] == "integer" and type(value) is not int:
                raise errors.invalid_param(name, "expected an integer")
        for name in properties:
            if name not in found and name not in OPTIONAL:
                if broken == "does not name the parameter":
                    raise errors.malformed("something is missing")
                raise errors.invalid_param(name, "it is missing")
        return found

    def _converted(self, name: str, schema: dict[str, Any], text: str) -> Any:
        word = text.strip()
        if schema["type"] == "string":
            if "enum" in schema and text not in schema["enum"]:
                raise errors.invalid_param(name, f"expected one of {schema['enum']}")
            return word if self.defect == "texts are trimmed" else text
        if schema["type"] == "integer":
            if not _INTEGER.fullmatch(word):
                raise errors.invalid_param(name, "expected an integer")
            return int(word)
        if schema["type"] == "boolean":
            if word not in _BOOLEANS or (self.defect == "no booleans in digits" and word in "01"):
                raise errors.invalid_param(name, "expected a boolean")
            return _BOOLEANS[word]
        try:
            number = float(word)
        except ValueError:
            raise errors.invalid_param(name, "expected a number") from None
        if not math.isfinite(number):
            raise errors.invalid_param(name, "expected a number")
        return number

    async def _run(self, request: Execute, params: dict[str, Any]) -> Result:
        name = request.skill.rpartition(".")[2]
        text, failed = "", False
        match name:
            case "echo":
                text = params["text"]
            case "add":
                text = str(params["a"] + params["b"])
            case "types":
                text = msgspec.json.encode(params).decode()
            case "count":
                key = params["key"]
                self.counts[key] = self.counts.get(key, 0) + 1
                text = str(self.counts[key])
            case "fail":
                if self.defect == "a no is an error":
                    raise StanzaError("not-allowed", params["message"])
                text, failed = params["message"], self.defect != "a no is a yes"
            case "big":
                raise errors.too_big(65536)
            case "sleep":
                with anyio.move_on_after(1) as scope:
                    await anyio.sleep(params["seconds"])
                    text = "slept"
                if scope.cancelled_caught:
                    raise errors.timed_out(repeatable=self.defect != "a timeout of the wrong type")
        skill = "another" if self.defect == "the result of another skill" else request.skill
        outputs = (Output(name="result", text=text),)
        if self.defect == "artifacts of one name":
            outputs *= 2
        return Result(skill=skill, is_error=failed, outputs=outputs)

    # -- chat ------------------------------------------------------------------------------------

    async def _message(self, stanza: Incoming) -> None:
        delayed = "{urn:xmpp:delay}delay" in stanza.payload_names
        if delayed and self.defect != "acts on what is old":
            return
        if stanza.type == "error":
            return
        if stanza.type in ("headline", "groupchat") and self.defect != "answers automatic messages":
            return
        if stanza.text_of("body") != "/help" or self.defect == "no help":
            return
        hinted = "{urn:xmpp:hints}no-store" in stanza.payload_names
        if hinted and self.defect == "takes hints for orders":
            return
        lang = stanza.lang if stanza.lang in _HELP else "en"
        if self.defect == "another language than its own":
            lang = "en" if stanza.lang == "de" else "de"
        await self._send(
            Message(
                from_=DOMAIN if self.defect == "chats from the domain" else stanza.to or DOMAIN,
                to=stanza.sender or "",
                type="normal" if self.defect == "chats in another type" else stanza.type,  # type: ignore[arg-type]
                body=_HELP[lang or "en"],
                lang=lang,
                thread=None if self.defect == "loses the thread" else stanza.text_of("thread"),
            )
        )


def _result(outcome: Any) -> Result:
    if isinstance(outcome, StanzaError):
        raise outcome
    assert isinstance(outcome, Result)
    return outcome


def pair() -> tuple[Any, Any]:
    """Two ends of a connection in memory."""
    to_agent, from_kit = anyio.create_memory_object_stream[bytes](math.inf)
    to_kit, from_agent = anyio.create_memory_object_stream[bytes](math.inf)
    return StapledObjectStream(to_agent, from_agent), StapledObjectStream(to_kit, from_kit)


@asynccontextmanager
async def _served(agent: SmallAgent) -> Any:
    ours, theirs = pair()
    async with anyio.create_task_group() as group:
        group.start_soon(agent.serve, theirs)
        try:
            yield ours
        finally:
            group.cancel_scope.cancel()
            await theirs.aclose()


def served(agent: SmallAgent) -> AbstractAsyncContextManager[Any]:
    """The kit's end of a connection to `agent`, which is served as long as the block lasts."""
    return _served(agent)
