"""Places the boxes of a graph in rows, so that arrows go down and cross each other rarely.

It is the layered method: boxes are assigned to rows by what they wait for; an arrow that passes a
row gets a place of its own in it; each row is sorted by where its neighbours are; then all boxes
move towards their neighbours as far as their row has room.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import count, pairwise
from math import ceil
from typing import Final, TypeAlias

import msgspec

MOST_IN_ROW: Final = 4
_SWEEPS: Final = 8
_PASSING: Final = 10.0
"""The width of the place of an arrow that passes a row."""
_GAP: Final = 28.0
_NARROW: Final = 14.0
"""The distance of an arrow that passes a row from its neighbours in the row."""

Arrow: TypeAlias = tuple[str, str]


class Layout(msgspec.Struct, frozen=True):
    """Where everything is.

    Attributes:
        rows: the names of the boxes in each row, from left to right.
        x: the middle of each box.
        paths: for each arrow the middle of each place on its way, from the row of its source to
            that of its target.
        width: of the whole.
    """

    rows: Sequence[Sequence[str]]
    x: Mapping[str, float]
    paths: Mapping[Arrow, Sequence[float]]
    width: float


def lay_out(widths: Mapping[str, float], arrows: Iterable[Arrow]) -> Layout:
    """Place boxes of these widths. An arrow that closes a circle is left out, and so is one from or
    to a box that does not exist.
    """
    return _Graph(widths, arrows).layout()


def without_detours(arrows: Iterable[Arrow]) -> list[Arrow]:
    """Return the arrows of a graph without circles, except those to where others lead as well."""
    known = list(dict.fromkeys(arrows))
    direct: dict[str, set[str]] = {}
    for source, target in known:
        direct.setdefault(source, set()).add(target)
    reached: dict[str, set[str]] = {}

    def reach(source: str) -> set[str]:
        if source not in reached:
            nearest = direct.get(source, set())
            reached[source] = nearest.union(*map(reach, nearest))
        return reached[source]

    return [
        (source, target)
        for source, target in known
        if not any(target in reach(one) for one in direct[source])
    ]


def depths_of(names: Iterable[str], arrows: Iterable[Arrow]) -> dict[str, int]:
    """Return for each box how many others are before it on the longest way to it. Arrows that close
    a circle do not count.
    """
    names = list(names)
    before: dict[str, set[str]] = {name: set() for name in names}
    for source, target in arrows:
        if source in before and target in before and source != target:
            before[target].add(source)
    found: dict[str, int] = {}
    while len(found) < len(names):
        free = [name for name in names if name not in found and before[name] <= found.keys()]
        for name in free or [next(name for name in names if name not in found)]:
            found[name] = 1 + max((found.get(one, -1) for one in before[name]), default=-1)
    return found


class _Graph:
    def __init__(self, widths: Mapping[str, float], arrows: Iterable[Arrow]) -> None:
        self._widths = dict(widths)
        depths = depths_of(widths, list(arrows := list(arrows)))
        self._arrows = [
            (source, target)
            for source, target in dict.fromkeys(arrows)
            if source in depths and target in depths and depths[source] < depths[target]
        ]
        self._rows = _rows_of(depths)
        self._paths: dict[Arrow, list[str]] = {}
        self._add_passing()

    def layout(self) -> Layout:
        """Return where everything is."""
        self._sort()
        x = self._positions()
        left = min(x[one] - self._widths[one] / 2 for row in self._rows for one in row)
        right = max(x[one] + self._widths[one] / 2 for row in self._rows for one in row)
        x = {name: middle - left for name, middle in x.items()}
        return Layout(
            rows=[[one for one in row if not _passes(one)] for row in self._rows],
            x=x,
            paths={arrow: [x[one] for one in path] for arrow, path in self._paths.items()},
            width=right - left,
        )

    def _add_passing(self) -> None:
        """Give arrows a place in each row that they pass."""
        numbers = count()
        row_of = {name: number for number, row in enumerate(self._rows) for name in row}
        for source, target in self._arrows:
            path = [source]
            for row in range(row_of[source] + 1, row_of[target]):
                path.append(name := f" {next(numbers)}")
                self._widths[name] = _PASSING
                self._rows[row].append(name)
            self._paths[source, target] = [*path, target]

    def _neighbours(self) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
        above: dict[str, list[str]] = {name: [] for name in self._widths}
        below: dict[str, list[str]] = {name: [] for name in self._widths}
        for path in self._paths.values():
            for upper, lower in pairwise(path):
                above[lower].append(upper)
                below[upper].append(lower)
        return above, below

    def _sort(self) -> None:
        """Sort each row by where the neighbours of its boxes are, and keep the best order."""
        above, below = self._neighbours()
        best, fewest = [list(row) for row in self._rows], self._crossings()
        for sweep in range(_SWEEPS):
            near, rows = (above, self._rows) if sweep % 2 == 0 else (below, self._rows[::-1])
            for before, row in pairwise(rows):
                place = {
                    name: number / max(1, len(before) - 1) for number, name in enumerate(before)
                }
                mine = {name: number / max(1, len(row) - 1) for number, name in enumerate(row)}

                def middle(name: str) -> float:
                    found = [place[one] for one in near[name] if one in place]  # noqa: B023
                    return sum(found) / len(found) if found else mine[name]  # noqa: B023

                row.sort(key=middle)
            crossings = self._crossings()
            if crossings < fewest:
                best, fewest = [list(row) for row in self._rows], crossings
        self._rows = best

    def _crossings(self) -> int:
        place = {name: number for row in self._rows for number, name in enumerate(row)}
        row_of = {name: number for number, row in enumerate(self._rows) for name in row}
        pieces: dict[int, list[tuple[int, int]]] = {}
        for path in self._paths.values():
            for upper, lower in pairwise(path):
                pieces.setdefault(row_of[upper], []).append((place[upper], place[lower]))
        return sum(
            (one[0] - other[0]) * (one[1] - other[1]) < 0
            for found in pieces.values()
            for number, one in enumerate(found)
            for other in found[number + 1 :]
        )

    def _positions(self) -> dict[str, float]:
        x: dict[str, float] = {}
        for row in self._rows:
            x |= self._spread(row, dict.fromkeys(row, 0.0))
        above, below = self._neighbours()
        for sweep in range(4 * _SWEEPS):
            near, rows = (above, self._rows) if sweep % 2 == 0 else (below, self._rows[::-1])
            for row in rows:
                wanted = {
                    name: sum(x[one] for one in near[name]) / len(near[name])
                    if near[name]
                    else x[name]
                    for name in row
                }
                x |= self._spread(row, wanted)
        return x

    def _spread(self, row: Sequence[str], wanted: Mapping[str, float]) -> dict[str, float]:
        """Return positions near the wanted ones at which the boxes of a row do not overlap."""
        right, left = dict(wanted), dict(wanted)
        for before, name in pairwise(row):
            right[name] = max(right[name], right[before] + self._distance(before, name))
        for after, name in pairwise(reversed(row)):
            left[name] = min(left[name], left[after] - self._distance(after, name))
        return {name: (left[name] + right[name]) / 2 for name in row}

    def _distance(self, one: str, other: str) -> float:
        """Return the least distance between the middles of two neighbours in a row."""
        gap = _NARROW if _passes(one) or _passes(other) else _GAP
        return gap + (self._widths[one] + self._widths[other]) / 2


def _passes(name: str) -> bool:
    """Whether this is the place of an arrow that passes a row."""
    return name.startswith(" ")


def _rows_of(depths: Mapping[str, int]) -> list[list[str]]:
    """Return the boxes of each depth in rows of about the same length."""
    rows: list[list[str]] = []
    for depth in range(max(depths.values(), default=-1) + 1):
        names = [name for name, its in depths.items() if its == depth]
        parts = ceil(len(names) / MOST_IN_ROW)
        for part in range(parts):
            begin, end = len(names) * part // parts, len(names) * (part + 1) // parts
            rows.append(names[begin:end])
    return rows
