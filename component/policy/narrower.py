"""Comparison of sets of patterns, for agents that pass on a part of their rights."""

from collections.abc import Iterable, Sequence

from component.policy.globs import pattern


def within(asked: Sequence[str], had: Sequence[str]) -> str | None:
    """Return the first of the patterns `asked` that is not covered by one of `had`, or None.

    This errs on the strict side: a pattern with `?` in `had` covers only an identical one, and
    several patterns never cover one together.
    """
    covering = pattern(glob for glob in had if "?" not in glob)
    return next((one for one in asked if one not in had and not covering.fullmatch(one)), None)


def narrowed(asked: Sequence[str], had: Sequence[str], names: Iterable[str]) -> tuple[str, ...]:
    """Restrict the patterns `asked` to those within `had`.

    A pattern that is not within is replaced by those of the `names` that match it and `had`.
    """
    both, mine = [one for one in asked if within((one,), had) is None], pattern(had)
    beyond = pattern(one for one in asked if one not in both)
    both += [name for name in names if beyond.fullmatch(name) and mine.fullmatch(name)]
    return tuple(both)


def common(one: Sequence[str], other: Sequence[str]) -> tuple[str, ...]:
    """Return the patterns of both lists that are within the other one, each once."""
    mine = [each for each in one if within((each,), other) is None]
    its = [each for each in other if within((each,), one) is None]
    return tuple(dict.fromkeys((*mine, *its)))
