"""`@skill`, which declares a Python function as a skill.

```python
@skill(read_only=True, open_world=False)
def shout(text: str) -> str:
    \"\"\"Return the text in capitals.\"\"\"
    return text.upper()
```

A declaration is an object and nothing more: a registry offers the skills that were added to it.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    ParamSpec,
    TypedDict,
    TypeVar,
    Unpack,
    overload,
)

import msgspec

from component.policy.taint import Taint
from component.skills.context import Context
from component.skills.errors import DeclarationError
from component.skills.inputs import Arguments
from component.skills.schema import Signature, outputs_of, read_docstring, signature_of
from component.skills.skill import Complete, Invoke, Own, RunKind, Skill
from component.skills.spec import Annotations, SkillSchedule, check_texts

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FunctionSkill(Skill, Generic[P, R_co]):
    """A skill that a Python function implements. Calling it calls the function."""

    function: Callable[P, R_co]
    given: frozenset[str] = dataclasses.field(repr=False)

    if not TYPE_CHECKING:  # with it, types would allow any attribute

        def __getattr__(self, name: str) -> Any:
            """Read the function when a value that follows from it is used for the first time."""
            if name not in _READ:
                return Skill.__getattr__(self, name)
            self.read()
            return object.__getattribute__(self, name)

    def read(self) -> None:
        """Derive the texts, the inputs and the outputs from the function. Raises
        DeclarationError.
        """
        function = self.function
        text, param_docs = read_docstring(function.__doc__)
        signature = signature_of(function, param_docs)
        outputs = outputs_of(function)
        if self.durable and (self.kind == "inline" or signature.context is None):
            raise DeclarationError(
                f"The skill {self.name!r} is durable and has no steps: take a Context, and remove"
                " inline=True."
            )
        found = {
            "description": text,
            "output_media_types": outputs.media_types,
            "input_schema": signature.schema,
            "output_schema": outputs.schema,
            "inputs": signature.inputs,
            "wants_context": signature.context is not None,
            "invoke": _invoker(function, signature),
        }
        for name, value in found.items():
            if name not in self.given:
                object.__setattr__(self, name, value)
        check_texts(self)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function itself, without validation."""
        return self.function(*args, **kwargs)


_READ: Final = (
    *("description", "output_media_types", "input_schema", "output_schema", "inputs"),
    *("wants_context", "invoke"),
)
"""The values that follow from a function; those that the options give do not."""


class SkillOptions(TypedDict, total=False):
    """The options of `skill`; those that are not given have the defaults of `SkillSpec`.

    `description` is the docstring by default, `destructive` the opposite of `read_only`.
    """

    name: str | None
    version: str
    title: str | None
    description: str | None
    question: str | None
    undo: str | None
    tags: Iterable[str]
    examples: Iterable[str]
    input_media_types: Iterable[str] | None
    output_media_types: Iterable[str] | None
    read_only: bool
    destructive: bool | None
    idempotent: bool
    open_world: bool
    typical_duration: float | None
    cost_usd: float | None
    timeout: float
    inline: bool
    hidden: bool
    durable: bool
    queue: str | None
    attempts: int
    backoff_s: float
    capabilities: Iterable[str]
    taint: Taint | None
    schedule: SkillSchedule | None


_SEQUENCES: Final = (
    *("tags", "examples", "input_media_types", "output_media_types", "capabilities"),
)
_KNOWN: Final = frozenset(SkillOptions.__annotations__)


@overload
def skill(function: Callable[P, R_co], /) -> FunctionSkill[P, R_co]: ...


@overload
def skill(
    **options: Unpack[SkillOptions],
) -> Callable[[Callable[P, R_co]], FunctionSkill[P, R_co]]: ...


def skill(
    function: Callable[P, R_co] | None = None, /, **options: Unpack[SkillOptions]
) -> FunctionSkill[P, R_co] | Callable[[Callable[P, R_co]], FunctionSkill[P, R_co]]:
    """Declare a function as a skill.

    An async function runs as such. A plain one runs in a worker thread and is abandoned after
    `timeout` seconds (its thread continues: threads cannot be stopped). `inline=True` is for a
    plain function that never blocks: it runs on the event loop, where nothing can interrupt it.

    The name is the function's unless given; the description is its docstring, the parameters'
    descriptions are `Annotated[…, msgspec.Meta(description=…)]` or the lines under `Args:`. A
    function with many parameters can take a frozen Struct of them before a slash. A skill is
    destructive unless it says `destructive=False` or `read_only=True`.

    `question` asks a person to confirm a call, such as `Delete {path}?`: each name in braces stands
    for a parameter, and a part in brackets is left out unless its parameters differ from their
    defaults. Without it people read the title and the parameters.

    `undo` says how a person undoes a call, and that it affects nobody else. Then a person who asks
    for it herself is not asked to confirm it.

    `durable=True` promises that all effects are inside `context.step`: after an interruption, or an
    answer to `context.ask`, the function starts again and skips the steps that it has completed. A
    skill that is not durable, read-only or idempotent is a single step.

    `queue` names a queue whose limits are in the settings (`[tasks.queues.NAME]`): its calls are
    tasks that wait until the queue lets them start. With `attempts=3` a call that raises, or that
    times out, becomes a task that is retried after `backoff_s` seconds, and twice as long each
    time; steps that succeeded are not repeated, a step that failed runs again with the same
    idempotency key. That needs `durable=True`, `read_only=True` or `idempotent=True`.

    `capabilities` name what it accesses, from the kind to the details, with colons: `memory:write`,
    `network:api.example.com:443`, `filesystem:read`. An agent needs all of them to call it. `taint`
    is the possible author of its results (`web`, `file`, `peer`); without it, the result of an
    open-world skill may be anybody's. A SkillResult can declare less for itself.

    `schedule` says when it is to run by itself. It does so only where the settings enable it
    (`[[skills.schedule]]`).

    Raises DeclarationError, in a sentence that names the function and what to change.
    """

    def declare(function: Callable[P, R_co]) -> FunctionSkill[P, R_co]:
        declared = _declared(function, options)
        declared.read()
        return declared

    return declare if function is None else declare(function)


def own_skill(
    *, complete: Complete | None = None, own: Own | None = None, **options: Unpack[SkillOptions]
) -> Callable[[Callable[P, R_co]], FunctionSkill[P, R_co]]:
    """Declare a function of this service as a skill: like `skill`, but it is read when the skill is
    first used, because reading all of them takes a twentieth of the time to start. `complete` and
    `own` are those of `Skill`.
    """

    def declare(function: Callable[P, R_co]) -> FunctionSkill[P, R_co]:
        return _declared(function, options, complete, own)

    return declare


def _declared(
    function: Callable[P, R_co],
    options: SkillOptions,
    complete: Complete | None = None,
    own: Own | None = None,
) -> FunctionSkill[P, R_co]:
    unknown = options.keys() - _KNOWN
    if unknown:
        raise TypeError(f"skill() got an unexpected keyword argument {min(unknown)!r}")
    if not inspect.isroutine(function):
        raise DeclarationError(f"{function!r} is not a function: only functions become skills.")
    # Some options may be given as None, for their defaults.
    fields: dict[str, Any] = {name: one for name, one in options.items() if one is not None}
    fields.update((name, tuple(fields[name])) for name in _SEQUENCES if name in fields)
    fields.setdefault("name", function.__name__)
    given = frozenset(fields)
    kind = _kind_of(function, inline=fields.pop("inline", False))
    # What a person can undo destroys nothing.
    destructive = False if fields.get("undo") else None
    annotations = Annotations.of(
        read_only=fields.pop("read_only", False),
        destructive=fields.pop("destructive", destructive),
        idempotent=fields.pop("idempotent", False),
        open_world=fields.pop("open_world", True),
    )
    if annotations.open_world:
        fields.setdefault("taint", "web")
    unread: Any = None
    declared: FunctionSkill[P, R_co] = FunctionSkill(
        **fields,
        annotations=annotations,
        input_schema={},
        source=f"{function.__module__}.{function.__qualname__}",
        inputs=unread,
        kind=kind,
        wants_context=False,
        invoke=unread,
        complete=complete,
        own=own,
        function=function,
        given=given,
    )
    for name in _READ:
        if name not in given:
            object.__delattr__(declared, name)  # `__getattr__` is called for an empty slot
    return declared


def _kind_of(function: Callable[..., Any], *, inline: bool) -> RunKind:
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
            f"functions that never wait. Remove inline=True, or make it a plain function."
        )
    return "async"


def _invoker(function: Callable[..., Any], signature: Signature) -> Invoke:
    """Return the fastest function from validated arguments to the call."""
    astuple: Callable[[Any], tuple[Any, ...]] = msgspec.structs.astuple
    asdict: Callable[[Any], dict[str, Any]] = msgspec.structs.asdict
    context_name = signature.context
    if context_name is not None:

        def with_context(arguments: Arguments, context: Context | None) -> Any:
            if context is None:
                raise TypeError(f"{function.__qualname__} wants a Context and was called without")
            if signature.as_struct:
                return function(arguments, **{context_name: context})
            return function(**asdict(arguments), **{context_name: context})

        return with_context
    if signature.as_struct:
        return lambda arguments, _: function(arguments)
    if signature.positional:
        return lambda arguments, _: function(*astuple(arguments))
    return lambda arguments, _: function(**asdict(arguments))
