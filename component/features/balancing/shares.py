"""How many connections each instance keeps open."""

from collections.abc import Mapping


def share_of(me: str, held: Mapping[str, int], connections: int) -> int:
    """Return the number of connections that an instance should have.

    All connections are divided evenly, and the remainder among those that have most already, so
    that as few as possible change hands. All instances compute the same division from the same
    state.

    Args:
        me: the instance.
        held: the number of connections that each instance has, also those that have none.
        connections: the number of connections of all together.
    """
    ranking = sorted(held, key=lambda each: (-held[each], each))
    whole, rest = divmod(connections, len(ranking))
    return whole + (ranking.index(me) < rest)
