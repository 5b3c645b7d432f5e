"""Whether what is asked for is within what one has: for who hands on a part of it."""

from collections.abc import Iterable, Sequence

from component.policy.globs import pattern


def within(asked: Sequence[str], had: Sequence[str]) -> str | None:
    """The first of the patterns `asked` that could match a name which none of `had` matches.

    None if there is none. Rather too strict: a pattern with `?` among those had covers only its
    like, and several of them never cover one together.
    """
    covering = pattern(glob for glob in had if "?" not in glob)
    return next((one for one in asked if one not in had and not covering.fullmatch(one)), None)


def narrowed(asked: Sequence[str], had: Sequence[str], names: Iterable[str]) -> tuple[str, ...]:
    """The patterns `asked`, as far as they are within `had`.

    One that is not within stands for those of the `names` that match it and one of `had`.
    """
    both, mine = [one for one in asked if within((one,), had) is None], pattern(had)
    beyond = pattern(one for one in asked if one not in both)
    both += [name for name in names if beyond.fullmatch(name) and mine.fullmatch(name)]
    return tuple(both)
