"""The sections of `agent.toml` that features declare.

A feature lists its sections in `SECTIONS` of its module `settings`. `settings[SCHEDULES]` is the
value of one, with its type.
"""

from collections.abc import Callable
from types import GenericAlias
from typing import Annotated, Any, Final, Generic, TypeVar

from pydantic import AfterValidator

from component.config.kinds import EMPTY, Section, on_use

T_co = TypeVar("T_co", covariant=True)
S = TypeVar("S", bound=Section)


class Top(Generic[T_co]):
    """A key above all sections: a table, a list of tables, or a table of tables.

    Args:
        name: the key.
        annotation: its type, as pydantic takes it.
        default: its value if it is not there.
    """

    def __init__(self, name: str, annotation: Any, default: T_co) -> None:
        self.name = name
        self.annotation: Final = annotation
        self.default: Final = default


def table(name: str, section: type[S]) -> Top[S]:
    """Return the key of a table `[name]`, all of whose keys have defaults."""
    return Top(name, on_use(section), EMPTY)


def optional_table(name: str, section: type[S]) -> Top[S | None]:
    """Return the key of a table `[name]` that turns something on."""
    return Top[S | None](name, on_use(section | None), None)


def list_of_tables(
    name: str, section: type[S], check: Callable[[tuple[S, ...]], tuple[S, ...]] | None = None
) -> Top[tuple[S, ...]]:
    """Return the key of a list of tables `[[name]]`. `check` raises a refusal."""
    annotation: Any = on_use(GenericAlias(tuple, (section, ...)))
    if check is not None:
        annotation = Annotated[annotation, AfterValidator(check)]
    return Top[tuple[S, ...]](name, annotation, ())


def named_tables(
    name: str, section: type[S], check: Callable[[dict[str, S]], dict[str, S]] | None = None
) -> Top[dict[str, S]]:
    """Return the key of tables with names, `[name.…]`. `check` raises a refusal."""
    annotation: Any = on_use(GenericAlias(dict, (str, section)))
    if check is not None:
        annotation = Annotated[annotation, AfterValidator(check)]
    return Top[dict[str, S]](name, annotation, {})
