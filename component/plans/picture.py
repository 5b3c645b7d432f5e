"""Pictures of the steps of a plan: as SVG, and as text for chats without files."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from component.plans.layout import Arrow, depths_of, lay_out, without_detours
from xep.binding.escaping import escape_text
from xep.fluux_agent.plan import PlanStep, PlanSteps, StepKind, StepState

_KINDS: Final[Mapping[StepKind, str]] = {"call": "tool", "agent": "agent", "ask": "question"}
_STATES: Final[Mapping[StepState, str]] = {
    "waiting": "waiting",
    "running": "running",
    "done": "done",
    "skipped": "skipped",
    "failed": "failed",
    "unknown": "outcome unknown",
    "cancelled": "cancelled",
}
_SYMBOLS: Final[Mapping[StepState, str]] = {
    "waiting": "○",
    "running": "▶",
    "done": "✓",
    "skipped": "»",
    "failed": "✗",
    "unknown": "?",
    "cancelled": "■",
}


_DEEPEST: Final = 8
"""How often a line is indented at most."""


def text(plan: PlanSteps) -> str:
    """Return a drawing of the steps as lines, each indented below what it waits for."""
    steps = plan.steps
    depths = depths_of([one.id for one in steps], _order(steps))
    lines = [f"{plan.title} ({_progress(plan)})"]
    if plan.paused is not None:
        lines.append(f"Paused: {plan.paused}")
    for step in steps:
        notes = [_STATES[step.state]]
        if step.after:
            notes.append(f"after {', '.join(step.after.split())}")
        notes += [f"if {one.id} fails" for one in steps if one.otherwise == step.id]
        indent = "   " * min(depths[step.id], _DEEPEST)
        lines.append(f"{indent}{_SYMBOLS[step.state]} {step.id}: {step.title} ({'; '.join(notes)})")
    return "\n".join(lines)


def svg(plan: PlanSteps) -> str:
    """Return a picture of the steps: boxes with their titles, kinds and states, and arrows from
    what is done before to what waits for it. It is a whole SVG document for light and dark screens,
    without fonts, scripts and links.
    """
    return _Picture(plan).svg()


def _order(steps: Iterable[PlanStep]) -> Iterator[Arrow]:
    """Yield an arrow from each step to each that waits for it or runs in its place."""
    steps = tuple(steps)
    for step in steps:
        for name in (step.after or "").split():
            for one in steps:
                if name in (one.id, one.group):
                    yield one.id, step.id
        if step.otherwise:
            yield step.id, step.otherwise


def _progress(plan: PlanSteps) -> str:
    """Return how many steps are done, of those that do not only run in place of others."""
    others = {one.otherwise for one in plan.steps}
    counted = [one for one in plan.steps if one.id not in others] or plan.steps
    done = sum(one.state == "done" for one in counted)
    return f"{done} of {len(counted)} {'step' if len(counted) == 1 else 'steps'} done"


# The picture. All lengths are in pixels.

_Point: TypeAlias = tuple[float, float]

_WIDTH: Final = 236.0
_HEIGHT: Final = 84.0
_PILL: Final = 28.0
_BETWEEN: Final = 48.0
_MARGIN: Final = 24.0
_HEAD: Final = 76.0
_PORT: Final = 18.0
"""The distance of arrows that begin or end at the same box."""
_TITLE: Final = 14.0
_SMALL: Final = 12.0
_TEXT_LEFT: Final = 52.0
_TEXT_WIDTH: Final = _WIDTH - _TEXT_LEFT - 16.0
_WIDEST_HEAD: Final = 640.0
_BEVEL: Final = 13.0

_MARKS: Final[Mapping[StepState, str]] = {
    "waiting": "",
    "running": "M-3-5.5 6 0-3 5.5z",
    "done": "M-5 .5-1.5 4 5-4",
    "skipped": "M-5-4-1 0-5 4M1-4 5 0 1 4",
    "failed": "M-4-4 4 4M4-4-4 4",
    "unknown": "M-3-2.8C-3-6.4 3.2-6.2 3.2-2.6 3.2-.4 0-.2 0 2.4M0 5.4V5.8",
    "cancelled": "M-3.5-3.5H3.5V3.5H-3.5z",
}
_FILLED: Final = ("running", "cancelled")
_LIGHT: Final[Mapping[StepState, tuple[str, str]]] = {
    "waiting": ("#f5f6f8", "#6f7987"),
    "running": ("#e2f0ff", "#1765b8"),
    "done": ("#e2f6e6", "#21753a"),
    "skipped": ("#f5f6f8", "#6f7987"),
    "failed": ("#fdeae8", "#bb2b27"),
    "unknown": ("#fdf4d2", "#8a6100"),
    "cancelled": ("#eeeeee", "#63676e"),
}
"""The fill of a box, and its border, on light screens."""
_DARK: Final[Mapping[StepState, tuple[str, str]]] = {
    "waiting": ("#20242a", "#8b95a3"),
    "running": ("#132c48", "#62a8f5"),
    "done": ("#15301d", "#5cbf77"),
    "skipped": ("#20242a", "#8b95a3"),
    "failed": ("#401a19", "#f47d78"),
    "unknown": ("#372b0a", "#dcae3d"),
    "cancelled": ("#26282b", "#a0a5ad"),
}
_INK, _FAINT, _PAPER = ("#1b2430", "#e7ebf0"), ("#525d6b", "#a3adba"), ("#ffffff", "#14171b")
_LINES: Final = ("#7d8794", "#8b95a3")


_ROLE: Final = (
    'role="img" aria-labelledby="t d" font-family="system-ui, Helvetica, Arial, sans-serif"'
)
_ARROWHEAD: Final = (
    '<defs><marker id="a" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7"'
    f' orient="auto"><path class="m" fill="{_LINES[0]}" d="M0 0 10 5 0 10z"/></marker></defs>'
)


def _size(width: float, height: float) -> str:
    return f'width="{width:.0f}" height="{height:.0f}"'


def _style() -> str:
    """Return the colours for dark screens. Those for light ones are attributes of the elements,
    because not every client knows style sheets.
    """
    rules = (
        f".p{{fill:{_PAPER[1]}}}.i{{fill:{_INK[1]}}}.f{{fill:{_FAINT[1]}}}.m{{fill:{_LINES[1]}}}"
        f".a{{stroke:{_LINES[1]}}}.k{{stroke:{_PAPER[1]}}}.g{{fill:{_PAPER[1]};stroke:{_LINES[1]}}}"
    )
    for state, (fill, line) in _DARK.items():
        rules += (
            f".{state}{{fill:{fill};stroke:{line}}}.{state}-c{{fill:{line};stroke:{line}}}"
            f".{state}-l{{stroke:{line}}}"
        )
    return f"<style>@media (prefers-color-scheme:dark){{{rules}}}</style>"


class _Picture:
    """The boxes are the steps, and small ones for the groups that steps wait for."""

    def __init__(self, plan: PlanSteps) -> None:
        self._plan = plan
        self._steps = {one.id: one for one in plan.steps}
        named = {name for one in plan.steps for name in (one.after or "").split()}
        self._groups = {
            f"group {one.group}": one.group
            for one in plan.steps
            if one.group in named and one.group not in self._steps
        }
        boxes = dict.fromkeys(self._steps, _WIDTH)
        boxes |= {key: 28 + _width(f"{name}", _SMALL) for key, name in self._groups.items()}
        self._instead = {(one.id, one.otherwise) for one in plan.steps if one.otherwise}
        depths = depths_of(boxes, [*self._arrows(), *self._instead])
        arrows = [one for one in self._arrows() if _is_forward(one, depths)]
        self._layout = lay_out(boxes, [*without_detours(arrows), *self._instead])
        self._rows: list[tuple[float, float]] = []
        """The top and the bottom of each row."""
        top = _HEAD + (_SMALL * 1.5 if plan.paused is not None else 0)
        for row in self._layout.rows:
            height = max(map(self._height, row))
            self._rows.append((top, top + height))
            top += height + _BETWEEN
        self._bottom = top - _BETWEEN + _MARGIN
        self._row_of = {one: n for n, row in enumerate(self._layout.rows) for one in row}
        heads = [_width(line, size) for line, size in self._head()]
        self._whole = max(self._layout.width, *heads) + 2 * _MARGIN
        self._left = (self._whole - self._layout.width) / 2

    def _arrows(self) -> Iterator[Arrow]:
        for step in self._plan.steps:
            if f"group {step.group}" in self._groups:
                yield step.id, f"group {step.group}"
            for name in (step.after or "").split():
                yield name if name in self._steps else f"group {name}", step.id

    def svg(self) -> str:
        """Return the whole document."""
        plan = self._plan
        width, height = round(self._whole), round(self._bottom)
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {_size(width, height)} {_ROLE}',
            f' viewBox="0 0 {width} {height}">',
            f'<title id="t">{escape_text(plan.title)}</title>',
            f'<desc id="d">{escape_text(text(plan))}</desc>{_style()}{_ARROWHEAD}',
            f'<rect class="p" fill="{_PAPER[0]}" {_size(width, height)} rx="8"/>',
        ]
        y = _MARGIN - 6
        for number, (line, size) in enumerate(self._head()):
            y += size * 1.35
            style = ("i", _INK[0], 600) if number == 0 else ("f", _FAINT[0], 400)
            parts.append(_text(_MARGIN, y, line, size, style))
        parts += self._drawn_arrows()
        parts += [self._pill(key, name or "") for key, name in self._groups.items()]
        parts += [self._box(step) for step in self._steps.values()]
        return "".join((*parts, "</svg>\n"))

    def _head(self) -> list[tuple[str, float]]:
        """Return the lines above the boxes, and the size of each."""
        plan = self._plan
        lines = [(_short(plan.title, _WIDEST_HEAD, 18.0), 18.0)]
        lines.append((f"Revision {plan.revision} · {_progress(plan)}", _SMALL))
        if plan.paused is not None:
            lines.append((_short(f"Paused: {plan.paused}", _WIDEST_HEAD, _SMALL), _SMALL))
        return lines

    # Boxes.

    def _height(self, name: str) -> float:
        return _HEIGHT if name in self._steps else _PILL

    def _top(self, name: str) -> float:
        top, bottom = self._rows[self._row_of[name]]
        return (top + bottom - self._height(name)) / 2

    def _middle(self, name: str) -> float:
        return self._left + self._layout.x[name]

    def _box(self, step: PlanStep) -> str:
        left, top = self._middle(step.id) - _WIDTH / 2, self._top(step.id)
        fill, line = _LIGHT[step.state]
        colours = f'class="{step.state}" fill="{fill}" stroke="{line}" stroke-width="1.5"'
        dashed = ' stroke-dasharray="5 4"' if step.state in ("skipped", "cancelled") else ""
        lines = _lines(step.title, _TEXT_WIDTH, _TITLE)
        y = _HEIGHT / 2 + (-3 if len(lines) == 1 else -12)
        texts = []
        for each in lines:
            texts.append(_text(_TEXT_LEFT, y, each, _TITLE, ("i", _INK[0], 600)))
            y += _TITLE * 1.3
        meta = f"{_KINDS[step.kind]} · {_STATES[step.state]}"
        texts.append(_text(_TEXT_LEFT, y + 2, meta, _SMALL, ("f", _FAINT[0], 400)))
        return (
            f'<g transform="translate({left:.1f} {top:.1f})">'
            f"<title>{escape_text(f'{step.id}: {step.title} ({meta})')}</title>"
            f"{_outline(step.kind, f'{colours}{dashed}', line, step.state)}"
            f"{_mark(step.state, line)}{''.join(texts)}</g>"
        )

    def _pill(self, key: str, name: str) -> str:
        width = 28 + _width(name, _SMALL)
        left, top = self._middle(key) - width / 2, self._top(key)
        label = (
            f'<text class="f" fill="{_FAINT[0]}" x="{width / 2:.1f}" y="18" text-anchor="middle"'
        )
        label += f' font-size="{_SMALL:g}">{escape_text(name)}</text>'
        return (
            f'<g transform="translate({left:.1f} {top:.1f})"><title>{escape_text(name)}</title>'
            f'<rect class="g" fill="{_PAPER[0]}" stroke="{_LINES[0]}" width="{width:.1f}"'
            f' height="{_PILL:.0f}" rx="14"/>{label}</g>'
        )

    # Arrows.

    def _drawn_arrows(self) -> Iterator[str]:
        paths = self._layout.paths
        starts = self._ports(lambda one: one[0], lambda one: paths[one][1])
        ends = self._ports(lambda one: one[1], lambda one: paths[one][-2])
        for arrow, xs in paths.items():
            source, target = arrow
            begin = self._middle(source) + starts[arrow], self._top(source) + self._height(source)
            x, y = begin
            path = f"M{x:.1f} {y:.1f}"
            row = self._row_of[source]
            for number, passing in enumerate(xs[1:-1], 1):
                top, bottom = self._rows[row + number]
                x, y, curve = _curve(x, y, self._left + passing, top)
                path += f"{curve}V{bottom:.1f}"
                y = bottom
            end = self._middle(target) + ends[arrow], self._top(target) - 1
            _, _, curve = _curve(x, y, *end)
            dashed = label = ""
            if arrow in self._instead:
                dashed = ' stroke-dasharray="5 4"'
                label = _label((begin, end), is_first=starts[arrow] < 0)
            yield (
                f'<path class="a" fill="none" stroke="{_LINES[0]}" stroke-width="1.5"{dashed}'
                f' marker-end="url(#a)" d="{path}{curve}"/>{label}'
            )

    def _ports(
        self, end: Callable[[Arrow], str], other: Callable[[Arrow], float]
    ) -> Mapping[Arrow, float]:
        """Return how far from the middle of its box each arrow begins or ends."""
        found: dict[Arrow, float] = {}
        for name in {end(one) for one in self._layout.paths}:
            mine = [one for one in self._layout.paths if end(one) == name]
            mine.sort(key=other)
            width = _WIDTH - 40 if name in self._steps else 20
            gap = min(_PORT, width / max(1, len(mine) - 1))
            for number, one in enumerate(mine):
                found[one] = (number - (len(mine) - 1) / 2) * gap
        return found


def _is_forward(arrow: Arrow, depths: Mapping[str, int]) -> bool:
    source, target = arrow
    return source in depths and target in depths and depths[source] < depths[target]


def _curve(x: float, y: float, to_x: float, to_y: float) -> tuple[float, float, str]:
    """Return the end of a curve that begins and ends vertically, and its path."""
    middle = (y + to_y) / 2
    return to_x, to_y, f"C{x:.1f} {middle:.1f} {to_x:.1f} {middle:.1f} {to_x:.1f} {to_y:.1f}"


def _label(ends: tuple[_Point, _Point], *, is_first: bool) -> str:
    """Return the text at an arrow to a step that runs in place of another one, beside the end at
    which there is more room: `is_first` if it is the leftmost arrow from its box.
    """
    words, size = "if it fails", 11.0
    (begin, top), (end, bottom) = ends
    width = 0.8 * _width(words, size) + 8
    x, y = (begin - width, top + 15) if is_first else (end - width, bottom - 8)
    if not is_first and begin <= end:
        x = end + 8
    return _text(x, y, words, size, ("f", _FAINT[0], 400))


def _outline(kind: StepKind, colours: str, line: str, state: StepState) -> str:
    """Return the shape of a box, which shows the kind of the step."""
    width, height = round(_WIDTH), round(_HEIGHT)
    if kind == "ask":
        right = width - _BEVEL
        points = (
            f"{_BEVEL:.0f},0 {right:.0f},0 {width},{height / 2:.0f} {right:.0f},{height}"
            f" {_BEVEL:.0f},{height} 0,{height / 2:.0f}"
        )
        return f'<polygon {colours} points="{points}"/>'
    box = f'<rect {colours} width="{width}" height="{height}" rx="8"/>'
    if kind == "agent":
        box += (
            f'<path class="{state}-l" stroke="{line}" stroke-width="1.5"'
            f' d="M7 0V{height}M{width - 7} 0V{height}"/>'
        )
    return box


def _mark(state: StepState, line: str) -> str:
    """Return the symbol of a state."""
    place = f'transform="translate(31 {_HEIGHT / 2:.0f})"'
    if state == "waiting":
        circle = f'class="{state}-l" fill="none" stroke="{line}" stroke-width="2"'
        return f'<circle {place} {circle} r="10"/>'
    inner = f'fill="{_PAPER[0]}"' if state in _FILLED else 'fill="none"'
    kind = "p k" if state in _FILLED else "k"
    return (
        f'<g {place}><circle class="{state}-c" fill="{line}" r="11"/>'
        f'<path class="{kind}" {inner} stroke="{_PAPER[0]}" stroke-width="2.2"'
        f' stroke-linecap="round" stroke-linejoin="round" d="{_MARKS[state]}"/></g>'
    )


# Text.


def _text(x: float, y: float, line: str, size: float, style: tuple[str, str, int]) -> str:
    class_, colour, weight = style
    bold = f' font-weight="{weight}"' if weight != 400 else ""
    return (
        f'<text class="{class_}" fill="{colour}" x="{x:.1f}" y="{y:.1f}"'
        f' font-size="{size:g}"{bold}>{escape_text(line)}</text>'
    )


def _width(line: str, size: float) -> float:
    """Return about how wide a bold line is. It is wider in few fonts."""
    return size * sum(map(_em, line))


def _em(character: str) -> float:
    if unicodedata.east_asian_width(character) in "WF":
        return 1.0
    if unicodedata.combining(character):
        return 0.0
    if character in "iljtfrI.,:;'|!()[] ":
        return 0.4
    if character in "mwMW@%—…":
        return 1.05
    return 0.8 if character.isupper() else 0.68


def _short(line: str, most: float, size: float) -> str:
    """Return a line that is not wider than this."""
    line = " ".join(line.split())
    if _width(line, size) <= most:
        return line
    while line and _width(line, size) > most - size:
        line = line[:-1]
    return f"{line.rstrip()}…"


def _lines(line: str, most: float, size: float) -> Sequence[str]:
    """Return a text as at most two lines."""
    line = " ".join(line.split())
    if _width(line, size) <= most:
        return (line,)
    end = next(n for n in range(len(line), 0, -1) if _width(line[:n], size) <= most)
    end = line.rfind(" ", 1, end + 1) if " " in line[1 : end + 1] else end
    return line[:end], _short(line[end:], most, size)
