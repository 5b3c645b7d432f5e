"""What the dialects of model APIs share: how a request becomes bytes, and a reader an answer.

No HTTP, no retries: `component.models.hosted` sends the requests.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import msgspec
import structlog

from component.models.answer_draft import AnswerDraft
from component.models.answer_limits import BadJSONError, is_object
from component.models.catalog import ModelTarget
from component.models.faults import Fault, read_fault
from component.models.messages import (
    ModelMessage,
    TextPart,
    ToolCall,
    portable_id,
    text_message,
    with_fields,
)
from component.models.protocol import ModelRequest, OnText
from component.models.tool_schemas import ToolNames
from component.models.usage import Reported, UsageFigures

_log = structlog.get_logger("component.models")

_SCHEMA: Final = "\n\nAnswer with JSON only, no other text, that fits this JSON Schema:\n"
_NOTE: Final = "[A note from the system, which nobody else sees: {}]"


class ProviderFaultError(Exception):
    """A fault that a provider reports inside of an answer."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


class AnswerReader(ABC):
    """Reads one answer into its `draft`.

    Reading raises BadJSONError, TooMuchError, and ProviderFaultError if the provider reports a
    fault in place of (the rest of) the answer.
    """

    def __init__(self, on_text: OnText | None) -> None:
        self.draft = AnswerDraft(on_text)

    def event(self, data: bytes) -> bool:
        """Read the data of one server-sent event; True if it is the last one."""
        if data == b"[DONE]":  # some gateways end the streams of every dialect so
            self.end()
            return True
        self._check(data)
        return self._event(data)

    def document(self, data: bytes) -> None:
        """Read an answer that came as one JSON document."""
        data = data.strip()
        self._check(data)
        self._document(data)
        self.end()

    def end(self) -> None:  # noqa: B027 - most readers hold nothing back
        """End the answer, and add text that was held back."""

    @abstractmethod
    def reported(self, figures: UsageFigures) -> Reported:
        """Return tokens and cost as the provider reports them; `figures` reads `draft.used`."""

    @abstractmethod
    def _event(self, data: bytes) -> bool: ...

    @abstractmethod
    def _document(self, data: bytes) -> None: ...

    def _check(self, data: bytes) -> None:
        if not data.startswith(b"{"):
            raise BadJSONError("it is not an object")
        self.draft.count()


class Adapter(ABC):
    """One dialect, for one model. It remembers which parameters the model has rejected.

    Attributes:
        optional: the parameters that a request can do without.
        schema_parameter: the one of them that holds an answer to a schema.
        origin: identifies dialect and model in opaque parts.
    """

    optional: ClassVar[tuple[str, ...]]
    schema_parameter: ClassVar[str]

    def __init__(self, target: ModelTarget, path: str) -> None:
        self.path = path
        self.origin = f"{target.dialect}/{target.choice.model}"
        self._target = target
        self._is_openai = target.official and target.choice.provider == "openai"
        self._left_out: set[str] = set()

    def body(self, request: ModelRequest, names: ToolNames) -> bytes:
        """Make the body of a streaming request, as JSON. Equal requests have equal bytes."""
        choice = self._target.choice
        if request.temperature is None and choice.temperature is not None:
            request = msgspec.structs.replace(request, temperature=choice.temperature)
        if self.schema_parameter in self._left_out:
            request = msgspec.structs.replace(request, messages=_with_schema(request))
        body = {"model": choice.model, "stream": True, **self._body(request, names)}
        for parameter in self._left_out:
            body.pop(parameter, None)
        return msgspec.json.encode(_merged(body, choice.extra_body))

    @abstractmethod
    def _body(self, request: ModelRequest, names: ToolNames) -> dict[str, Any]:
        """The parameters other than model and stream. The request has the temperature to send."""

    @abstractmethod
    def reader(
        self, request: ModelRequest, names: ToolNames, on_text: OnText | None
    ) -> AnswerReader:
        """Make a reader for one answer to this request."""

    def leave_out(self, fault: Fault) -> bool:
        """Stop sending what the provider rejects; False if the request needs it."""
        for parameter in self.optional:
            if parameter not in self._left_out and fault.blames(parameter):
                self._left_out.add(parameter)
                _log.warning(
                    "the model does without",
                    parameter=parameter,
                    model=self._target.choice.model,
                    url=self._target.where.url,
                )
                return True
        return False

    def _max_tokens(self, request: ModelRequest) -> int:
        return min(request.max_tokens, self._target.choice.max_tokens_per_request)


def fault_in(data: bytes) -> ProviderFaultError:
    """Make the error for an event, or a document, that is a fault."""
    return ProviderFaultError(read_fault(0, data))


def _merged(body: dict[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """The body with the parameters of `extra_body`; objects are merged."""
    out = dict(body)
    for key, value in extra.items():
        there = out.get(key)
        both = isinstance(there, dict) and isinstance(value, Mapping)
        out[key] = _merged(there, value) if both else value  # type: ignore[arg-type]  # both says so
    return out


def _with_schema(request: ModelRequest) -> tuple[ModelMessage, ...]:
    """The messages with the schema in the prompt, for providers without constrained output."""
    if request.schema is None:
        return request.messages
    told = _SCHEMA + bytes(request.schema).decode()
    first, *rest = request.messages
    if first.role == "system":
        return (text_message("system", first.text + told), *rest)
    return (text_message("system", told.strip()), *request.messages)


class SentIds(dict[str, str]):
    """The ids of calls as they are sent: those of the model itself, where they are known as its
    own, and otherwise ids that every API takes.
    """

    def __init__(self, messages: Sequence[ModelMessage]) -> None:
        super().__init__(
            (part.id, str(fields["id"]))
            for message in messages
            if message.role == "assistant"
            for part, fields in with_fields(message.parts)
            if isinstance(part, ToolCall) and fields.get("id")
        )

    def __missing__(self, id_: str) -> str:
        """Return an id that every API takes."""
        return portable_id(id_)


def sent_arguments(call: ToolCall, names: ToolNames) -> str:
    """Return the arguments of a call as a JSON object, because servers reject calls with others.

    Anything else that a model wrote becomes the value of `malformed`.
    """
    written = names.arguments_for(call.name, call.arguments)
    if is_object(written):
        return written
    return json.dumps({"malformed": written.encode(errors="replace").decode()})


def normalize_roles(messages: Sequence[ModelMessage]) -> tuple[ModelMessage, ...]:
    """Return the messages with at most one system message, at the beginning.

    The templates of many open models reject others, and Anthropic moves all to the beginning, away
    from their context. So system messages at the beginning are joined, and later ones become notes
    in messages of the user, joined with the previous message of the user if there is one.
    """
    out: list[ModelMessage] = []
    for message in messages:
        if message.role != "system":
            out.append(message)
        elif not out or (len(out) == 1 and out[0].role == "system"):
            before = f"{out.pop().text}\n\n" if out else ""
            out.append(text_message("system", before + message.text))
        elif out[-1].role == "user":
            note = TextPart(f"\n\n{_NOTE.format(message.text)}")
            out.append(ModelMessage("user", (*out.pop().parts, note)))
        else:
            out.append(text_message("user", _NOTE.format(message.text)))
    return tuple(out)


def is_strict(schema: msgspec.Raw) -> bool:
    """Whether OpenAI can enforce a schema strictly."""
    decoded = msgspec.json.decode(schema)
    return isinstance(decoded, dict) and "anyOf" not in decoded and _is_closed(decoded)


def _is_closed(schema: Any) -> bool:
    """Whether every object of a schema requires all its properties and allows no others."""
    if isinstance(schema, list):
        return all(map(_is_closed, schema))
    if not isinstance(schema, dict):
        return True
    if "properties" not in schema and schema.get("type") != "object":
        return all(map(_is_closed, schema.values()))
    properties = schema.get("properties", {})
    return (
        schema.get("additionalProperties") is False
        and set(properties) == set(schema.get("required", ()))
        and all(_is_closed(value) for key, value in schema.items() if key != "properties")
        and all(map(_is_closed, properties.values()))
    )
