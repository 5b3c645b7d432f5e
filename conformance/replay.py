"""Sends the stanzas of a saved script again, and says whether the same comes back.

What was asked under an identifier is never asked again by a fresh run, so identifiers and resources
are made anew; what the target had chosen, such as the id of a task, is learned from its answers and
put into what is sent later.
"""

import re
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from xml.etree.ElementTree import Element, ParseError, fromstring

import anyio

from conformance.drivers import Cast, Driver
from conformance.record import Entry
from xep.stanza import Incoming

PATIENCE = 10.0
"""Seconds to wait for what came the last time."""
_MARK = re.compile(r"(>>>|<<<) (\d+\.\d{3}) s")
_HEAD = re.compile(r"# ([a-z0-9.-]+): .*")
_LANE = r"\b{}-[0-9a-f]{{6}}"
_TIME = re.compile(r"\d{4}-\d\d-\d\dT")
_SHORTEST = 6
"""Characters of a value that is taken for one that the target chose; shorter ones are states."""
_OWN = frozenset({"iq", "message", "presence"})


@dataclass
class Scene:
    """What was exchanged in one check, to be sent again."""

    name: str
    entries: list[Entry] = field(default_factory=list)

    @property
    def target(self) -> str:
        """The address that it went to."""
        found = re.search(
            r" to=['\"]([^'\"]+)", next(o.xml for o in self.entries if o.way == "out")
        )
        return found[1] if found else ""


def read_script(text: str) -> list[Scene]:
    """Read what `--script` has written.

    Raises:
        ValueError: there is nothing in it to send; the sentence says what was looked for.
    """
    scenes: list[Scene] = []
    lines: list[str] = []
    for line in [*text.splitlines(), "# end.of: script"]:
        mark, head = _MARK.fullmatch(line), _HEAD.fullmatch(line)
        if (mark or head) and scenes and lines:
            _close(scenes[-1], lines)
        if head:
            scenes.append(Scene(head[1]))
            lines = []
        elif mark:
            lines = [line]
        elif lines:
            lines.append(line)
    scenes = [one for one in scenes if any(entry.way == "out" for entry in one.entries)]
    if not scenes:
        raise ValueError("This is no script of the kit: no line such as >>> 0.123 s is in it.")
    return scenes


def _close(scene: Scene, lines: list[str]) -> None:
    mark = _MARK.fullmatch(lines[0])
    assert mark is not None
    xml = "\n".join(lines[1:]).strip()
    # The line breaks were put in for the eye.
    xml = re.sub(r">\n\s*<", "><", xml)
    scene.entries.append(Entry("out" if mark[1] == ">>>" else "in", float(mark[2]), xml))


class Replay:
    """Sends scenes by way of a driver.

    Args:
        driver: the way to the target.
        patience: seconds to wait for each stanza that had come.
    """

    def __init__(self, driver: Driver, patience: float = PATIENCE) -> None:
        self._driver = driver
        self._patience = patience
        self._came: list[Incoming] = []
        self._changed = anyio.Event()
        self._known: dict[str, str] = {}

    async def run(self, scenes: Sequence[Scene]) -> list[str]:
        """Send all of it; return lines for a person, those of differences with a `≠`.

        Raises:
            DriverError: the target cannot be reached.
        """
        lines: list[str] = []
        async with self._driver.open(self._deliver):
            for scene in scenes:
                lines.append(f"# {scene.name}")
                lines += await self._scene(scene)
        return lines

    def _deliver(self, stanza: Incoming) -> None:
        self._came.append(stanza)
        self._changed.set()
        self._changed = anyio.Event()

    async def _scene(self, scene: Scene) -> list[str]:
        token = f"{scene.name}-{secrets.token_hex(3)}"
        cast, self._known = self._driver.cast(token), {}
        self._came.clear()
        lines = []
        for entry in scene.entries:
            said = re.sub(_LANE.format(re.escape(scene.name)), token, entry.xml)
            before = _tree(said)
            if before is None and entry.way == "in":
                lines.append("... what came was too long to be kept, or is no XML: not compared")
            elif before is None:
                lines.append(f"≠ a stanza that was cut or is no XML is left out: {said[:60]!r}")
            elif entry.way == "in" and before.get("type") not in ("get", "set"):
                lines += await self._expected(before)
            elif entry.way == "out" and not (before.tag == "iq" and _answers(before)):
                sender = _sender(before, cast)
                said = said.replace(before.get("from", sender), sender)
                for old, new in self._known.items():
                    said = said.replace(old, new)
                lines.append(f">>> {said}")
                await self._driver.send(sender, said)
        return lines

    async def _expected(self, before: Element) -> list[str]:
        with anyio.move_on_after(self._patience):
            while not self._like(before, alike=True):
                await self._changed.wait()
        found = self._like(before, alike=True) or self._like(before, alike=False)
        if found is None:
            return [f"≠ nothing came like <{before.tag}/> with {_shape(before)}"]
        self._came.remove(found)
        now = _tree(found.forward())
        assert now is not None
        self._known.update(_learned(before, now))
        same = _shape(before) == _shape(now)
        lines = [f"<<< {found.forward()}"]
        return lines if same else [*lines, f"≠ it was {_shape(before)}, and is {_shape(now)}"]

    def _like(self, before: Element, *, alike: bool) -> Incoming | None:
        """The first stanza that came in place of this one; an IQ's answer is known by its id."""
        for one in self._came:
            if one.kind == "iq" == before.tag and one.id == before.get("id"):
                return one
            now = _tree(one.forward()) if one.kind == before.tag == "message" else None
            if now is not None and (not alike or _shape(now) == _shape(before)):
                return one
        return None


def _tree(xml: str) -> Element | None:
    try:
        return fromstring(xml)  # noqa: S314 - written by the kit, which knows no DTD
    except ParseError:
        return None


def _answers(stanza: Element) -> bool:
    return stanza.get("type") in ("result", "error")


def _sender(stanza: Element, cast: Cast) -> str:
    """Who says it now: the one of our people whose account said it, or the caller."""
    was = stanza.get("from", "")
    people = [
        one for one in (cast.caller, cast.other, cast.stranger, cast.refused, cast.peer) if one
    ]
    if was in people:
        return was
    same = [one for one in people if one.partition("/")[0] == was.partition("/")[0]]
    return same[0] if same else cast.caller


def _learned(before: Element, now: Element) -> Iterator[tuple[str, str]]:
    """What the target chose then, and what it chose now."""
    if before.tag != now.tag:
        return
    if before.tag not in _OWN:
        for name, old in before.items():
            new = now.get(name, old)
            if old != new and len(old) >= _SHORTEST and not _TIME.match(old):
                yield old, new
    for one, other in zip(before, now, strict=False):
        yield from _learned(one, other)


def _shape(stanza: Element) -> str:
    """What has to be the same: the type, and the elements that it holds, two deep."""
    names = [
        "/".join(part.tag.rpartition("}")[2] for part in (child, *list(child)[:2]))
        for child in stanza
    ]
    return f"{stanza.get('type', 'normal')}: {', '.join(names) or 'nothing'}"
