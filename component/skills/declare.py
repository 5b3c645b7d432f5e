"""What a skill is, and `@skill`, which makes one of a function.

```python
@skill(read_only=True, open_world=False)
def shout(text: str) -> str:
    \"\"\"Return the text in capitals.\"\"\"
    return text.upper()
```

A declaration is an object and nothing more: it is offered where somebody adds it to a registry.
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import re
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypeAlias, TypeVar, overload

import msgspec

from component.policy.taint import TAINTS, Taint, worst
from component.skills.docstrings import read_docstring
from component.skills.errors import DeclarationError
from component.skills.outputs import JSON, TEXT, SkillResult, result_of
from component.skills.schema import Inputs, Outputs, inputs_of, outputs_of
from xep.characters import forbidden

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from component.skills.context import Context

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)

Kind = Literal["inline", "thread", "async"]

DEFAULT_TIMEOUT = 120.0

_LONGEST_NAME = 128
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*")
_VERSION = re.compile(r"[!-~]{1,64}")
_CAPABILITY = re.compile(r"[a-z][a-z0-9-]*(:[^\s:*?\[\]]+)*")
_LABELS = f"write {', '.join(map(repr, TAINTS[:-1]))} or {TAINTS[-1]!r}"
_MEDIA_TYPE = re.compile(r"[\w!#$&^.+-]+/[\w!#$&^.+*-]+(\s*;.*)?")


class Annotations(msgspec.Struct, frozen=True):
    """What a skill does to the world, with the names and defaults of MCP's tool annotations.

    What is not marked is destructive and open to the world. A claim of the skill's author.
    """

    read_only: bool = False
    destructive: bool = True
    idempotent: bool = False
    open_world: bool = True

    @property
    def repeatable(self) -> bool:
        """Whether running twice does what running once does."""
        return self.read_only or self.idempotent


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Skill(Generic[P, R_co]):
    """Something that can be asked for by name. Calling it calls the function it was made of.

    `kind` is how it runs: `inline` at once on the event loop, `thread` in a worker thread, `async`
    as a coroutine. `timeout` and `typical_duration` are seconds, `cost_usd` is US dollars a call.
    A `hidden` skill is in nobody's view. All effects of a `durable` one are inside its steps, so
    the code between them may run again. `capabilities` are what it touches, as in
    `network:api.example.com:443` or `memory:write`; an agent that calls it needs them all. `taint`
    is who could have written what it gives, at most. `invoke` calls the function with validated
    arguments (an instance of `inputs.struct`) and, where `wants_context`, the call's context.
    `digest` is a hash over all that a caller can be shown, the same in every process.
    """

    name: str
    version: str
    title: str
    description: str
    tags: tuple[str, ...]
    examples: tuple[str, ...]
    input_media_types: tuple[str, ...]
    output_media_types: tuple[str, ...]
    annotations: Annotations
    typical_duration: float | None
    cost_usd: float | None
    timeout: float
    hidden: bool
    durable: bool
    capabilities: tuple[str, ...]
    taint: Taint | None
    kind: Kind
    function: Callable[P, R_co]
    inputs: Inputs
    outputs: Outputs
    invoke: Callable[[msgspec.Struct, Context | None], Any] = dataclasses.field(repr=False)
    at_once: bool = dataclasses.field(init=False, repr=False)
    digest: bytes = dataclasses.field(init=False, repr=False)
    searched: str = dataclasses.field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Compute once what discovery asks for again and again. Raises DeclarationError."""
        _check_texts(self)
        at_once = self.kind == "inline" and self.annotations.repeatable
        object.__setattr__(self, "at_once", at_once)
        words = (self.name, self.title, self.description, *self.tags)
        object.__setattr__(self, "searched", "\n".join(words).casefold())
        object.__setattr__(self, "digest", hashlib.sha256(_described(self)).digest())

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function itself, as if it had not been declared."""
        return self.function(*args, **kwargs)

    def result(self, value: Any, duration: float) -> SkillResult:
        """What the function returned, as a result.

        Raises as `result_of` does, and ValueError for a result that says that it can hold texts of
        more distrusted people than the skill declares: what is declared is what others rely on.
        So is one that says what is no label: taken for none, it would be trusted.
        """
        made = result_of(value, duration)
        if not set(made.taints or ()) <= set(TAINTS):
            raise ValueError(f"a result says taints={made.taints!r}: {_LABELS}, in a tuple")
        if made.taints is not None and worst((self.taint, *made.taints)) != self.taint:
            raise ValueError(
                f"a result says taints={made.taints!r}, and the skill declares taint={self.taint!r}"
                ": declare the most that its results can hold"
            )
        return made

    def taint_of(self, made: SkillResult) -> Taint | None:
        """Who could have written a result: as it says itself, or else as the skill declares."""
        return self.taint if made.taints is None else worst(made.taints)

    @property
    def wants_context(self) -> bool:
        """Whether the function has a parameter for the call's Context."""
        return self.inputs.context is not None


AnySkill: TypeAlias = Skill[..., Any]


@overload
def skill(function: Callable[P, R_co], /) -> Skill[P, R_co]: ...


@overload
def skill(
    *,
    name: str | None = None,
    version: str = "1.0.0",
    title: str | None = None,
    description: str | None = None,
    tags: Iterable[str] = (),
    examples: Iterable[str] = (),
    input_media_types: Iterable[str] | None = None,
    output_media_types: Iterable[str] | None = None,
    read_only: bool = False,
    destructive: bool | None = None,
    idempotent: bool = False,
    open_world: bool = True,
    typical_duration: float | None = None,
    cost_usd: float | None = None,
    timeout: float = DEFAULT_TIMEOUT,
    inline: bool = False,
    hidden: bool = False,
    durable: bool = False,
    capabilities: Iterable[str] = (),
    taint: Taint | None = None,
) -> Callable[[Callable[P, R_co]], Skill[P, R_co]]: ...


def skill(
    function: Callable[P, R_co] | None = None,
    /,
    *,
    name: str | None = None,
    version: str = "1.0.0",
    title: str | None = None,
    description: str | None = None,
    tags: Iterable[str] = (),
    examples: Iterable[str] = (),
    input_media_types: Iterable[str] | None = None,
    output_media_types: Iterable[str] | None = None,
    read_only: bool = False,
    destructive: bool | None = None,
    idempotent: bool = False,
    open_world: bool = True,
    typical_duration: float | None = None,
    cost_usd: float | None = None,
    timeout: float = DEFAULT_TIMEOUT,
    inline: bool = False,
    hidden: bool = False,
    durable: bool = False,
    capabilities: Iterable[str] = (),
    taint: Taint | None = None,
) -> Skill[P, R_co] | Callable[[Callable[P, R_co]], Skill[P, R_co]]:
    """Declare a function as a skill.

    An async function runs as such. A plain one runs in a worker thread and is given up after
    `timeout` seconds (its thread is not: threads cannot be stopped). `inline=True` is for a plain
    function that never blocks: it runs on the event loop, where nothing can interrupt it.

    The name is the function's unless given; the description is its docstring, the parameters'
    descriptions are `Annotated[…, msgspec.Meta(description=…)]` or the lines under `Args:`. A skill
    is destructive unless it says `destructive=False` or `read_only=True`.

    `durable=True` promises that all effects are inside `context.step`: after an interruption, or an
    answer to `context.ask`, the function begins anew and passes the steps it has done. What is not
    durable, read-only or idempotent is one step of its own.

    `capabilities` name what it touches, kind first and then ever more closely, with colons:
    `memory:write`, `network:api.example.com:443`, `filesystem:read`. An agent calls it only if it
    was given them all. `taint` says who could have written what it returns (`web`, `file`, `peer`);
    unless it says so, what an open-world skill returns could be anybody's. A SkillResult can say
    less of itself.

    Raises DeclarationError, in a sentence that names the function and what to change.
    """

    def declare(function: Callable[P, R_co]) -> Skill[P, R_co]:
        if not inspect.isroutine(function):
            raise DeclarationError(f"{function!r} is not a function: only functions become skills.")
        text, param_docs = read_docstring(function.__doc__)
        inputs = inputs_of(function, param_docs)
        outputs = outputs_of(function)
        chosen = function.__name__ if name is None else name
        declared: Skill[P, R_co] = Skill(
            name=chosen,
            version=version,
            title=_title_of(chosen) if title is None else title,
            description=text if description is None else description,
            tags=tuple(tags),
            examples=tuple(examples),
            input_media_types=(
                (TEXT, JSON) if input_media_types is None else tuple(input_media_types)
            ),
            output_media_types=(
                outputs.media_types if output_media_types is None else tuple(output_media_types)
            ),
            annotations=Annotations(
                read_only=read_only,
                destructive=not read_only if destructive is None else destructive,
                idempotent=idempotent,
                open_world=open_world,
            ),
            typical_duration=typical_duration,
            cost_usd=cost_usd,
            timeout=timeout,
            hidden=hidden,
            durable=durable,
            capabilities=tuple(capabilities),
            taint=taint or ("web" if open_world else None),
            kind=_kind_of(function, inline=inline),
            function=function,
            inputs=inputs,
            outputs=outputs,
            invoke=_invoker(function, inputs),
        )
        _check(declared)
        return declared

    return declare if function is None else declare(function)


def _kind_of(function: Callable[..., Any], *, inline: bool) -> Kind:
    title = function.__qualname__
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise DeclarationError(
            f"The skill function {title} is a generator: return its outputs together instead."
        )
    if not inspect.iscoroutinefunction(function):
        return "inline" if inline else "thread"
    if inline:
        raise DeclarationError(
            f"The skill function {title} is async and cannot be inline: inline is for plain "
            f"functions that never wait. Leave inline=True out, or make it a plain function."
        )
    return "async"


def _invoker(
    function: Callable[..., Any], inputs: Inputs
) -> Callable[[msgspec.Struct, Context | None], Any]:
    """Return the quickest way from validated arguments to the function."""
    astuple, asdict = msgspec.structs.astuple, msgspec.structs.asdict
    context_name = inputs.context
    if context_name is not None:

        def with_context(arguments: msgspec.Struct, context: Context | None) -> Any:
            if context is None:
                raise TypeError(f"{function.__qualname__} wants a Context and was called without")
            return function(**asdict(arguments), **{context_name: context})

        return with_context
    if inputs.positional:
        return lambda arguments, _: function(*astuple(arguments))
    return lambda arguments, _: function(**asdict(arguments))


def _title_of(name: str) -> str:
    words = re.sub(r"[._-]+", " ", name).strip()
    return words[:1].upper() + words[1:]


def _check(declared: AnySkill) -> None:
    """Raise DeclarationError for what would mislead callers or could not be sent to them."""
    where = f"The skill {declared.name!r}"
    if len(declared.name) > _LONGEST_NAME or not _NAME.fullmatch(declared.name):
        raise DeclarationError(
            f"{where} has no usable name: begin with a letter, go on with letters, digits, '_', "
            f"'-' and single dots, at most {_LONGEST_NAME} characters of ASCII."
        )
    if not _VERSION.fullmatch(declared.version):
        raise DeclarationError(f"{where} has no usable version: write it like 1.2.0.")
    if declared.annotations.read_only and declared.annotations.destructive:
        raise DeclarationError(f"{where} is read-only and destructive: it cannot be both.")
    if declared.durable and (declared.kind == "inline" or not declared.wants_context):
        raise DeclarationError(
            f"{where} is durable and has no steps: take a Context, and leave inline=True out."
        )
    if declared.taint is not None and declared.taint not in TAINTS:
        raise DeclarationError(f"{where} has taint={declared.taint!r}: {_LABELS}.")
    for capability in declared.capabilities:
        if not _CAPABILITY.fullmatch(capability):
            raise DeclarationError(
                f"{where} names the capability {capability!r}: write it like memory:write or "
                "network:api.example.com:443, without * and ?."
            )
    if not 0 < declared.timeout < float("inf"):
        raise DeclarationError(f"{where} has a time-out that is no number of seconds above 0.")
    for value, what in ((declared.typical_duration, "duration"), (declared.cost_usd, "cost")):
        if value is not None and not 0 <= value < float("inf"):
            raise DeclarationError(f"{where} has a {what} that is no number from 0 up.")
    for media_type in (*declared.input_media_types, *declared.output_media_types):
        if not _MEDIA_TYPE.fullmatch(media_type):
            raise DeclarationError(f"{where} names {media_type!r}, which is no media type.")


def _check_texts(declared: AnySkill) -> None:
    """Raise DeclarationError for what no reply could carry."""
    shown = (declared.title, declared.description, *declared.tags, *declared.examples)
    for text in (*shown, *(param.description or "" for param in declared.inputs.params)):
        found = forbidden.search(text)
        if found is not None:
            raise DeclarationError(
                f"The skill {declared.name!r} is described by a text that cannot be sent: XML"
                f" cannot carry U+{ord(found.group()):04X}, found at position {found.start()}."
            )


def _described(declared: AnySkill) -> bytes:
    """Return all that a caller can be shown, in one fixed form."""
    return msgspec.json.encode(
        (
            declared.name,
            declared.version,
            declared.title,
            declared.description,
            declared.tags,
            declared.examples,
            declared.input_media_types,
            declared.output_media_types,
            declared.annotations,
            declared.typical_duration,
            declared.cost_usd,
            declared.inputs.schema,
            declared.outputs.schema,
        ),
        order="deterministic",
    )
