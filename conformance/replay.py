"""Replays the stanzas of a saved script, and compares the answers.

A new run never repeats an identifier, so identifiers and resources are replaced by new ones, and
times are moved to now; values that the target had chosen, such as the id of a task, are learned
from its answers and inserted into later stanzas. Addresses are replaced by those with the same role
now: a script may have been saved with another driver.
"""

import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from xml.etree.ElementTree import Element, ParseError, fromstring
from xml.sax.saxutils import quoteattr

import anyio

from conformance.drivers import Cast, Deliver, Driver
from conformance.drivers.link import as_a_client
from conformance.model import Ability
from conformance.record import RecordedStanza
from xep.disco import INFO
from xep.stanza import Incoming

TIMEOUT_S = 10.0
"""Seconds to wait for each stanza of the script."""
_MARK = re.compile(r"(>>>|<<<) (\d+\.\d{3}) s")
_HEAD = re.compile(r"# ([a-z0-9.-]+): .*")
_ABOUT = re.compile(r"# begun (\S+) by (.*)")
_LANE = r"\b{}-[0-9a-f]{{6}}"
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)")
_NEAR = timedelta(hours=2)
"""A time within this distance of the run is assumed to be relative to it."""
_PAUSE = 0.5
"""A pause of at least this many seconds means that the check was waiting for something."""
_SHORTEST = 6
"""The minimum length of a value that may have been chosen by the target; shorter ones are
states.
"""
_LONG_TEXT = 20
"""A text without white space of at least this length may also be such a value, such as a digest."""
_OWN = frozenset({"iq", "message", "presence"})


@dataclass
class Scene:
    """The stanzas of one check, to be replayed.

    Attributes:
        name: of the check.
        entries: the stanzas.
        begun: when the recorded run began, in UTC; None if the script does not say.
        people: the addresses that were used, by their roles.
    """

    name: str
    entries: list[RecordedStanza] = field(default_factory=list)
    begun: datetime | None = None
    people: dict[str, str] = field(default_factory=dict)

    @property
    def target(self) -> str:
        """The target's address in the script."""
        found = re.search(
            r" to=['\"]([^'\"]+)", next(o.xml for o in self.entries if o.way == "out")
        )
        return found[1] if found else ""


def read_script(text: str) -> list[Scene]:
    """Parse the output of `--script`.

    Raises:
        ValueError: it contains nothing to send; the sentence says what was expected.
    """
    scenes: list[Scene] = []
    lines: list[str] = []
    for line in [*text.splitlines(), "# end.of: script"]:
        mark, head, about = _MARK.fullmatch(line), _HEAD.fullmatch(line), _ABOUT.fullmatch(line)
        if (mark or head) and scenes and lines:
            _close(scenes[-1], lines)
        if head:
            scenes.append(Scene(head[1]))
            lines = []
        elif about and scenes:
            scenes[-1].begun = datetime.fromisoformat(about[1])
            parts = [one.partition("=") for one in about[2].split(", ")]
            scenes[-1].people = {part: jid for part, _, jid in parts}
        elif mark:
            lines = [line]
        elif lines:
            lines.append(line)
    scenes = [one for one in scenes if any(entry.way == "out" for entry in one.entries)]
    if not scenes:
        raise ValueError("This is no script of the kit: no line such as >>> 0.123 s is in it.")
    return scenes


def about_line(begun: str, cast: Cast) -> str:
    """Return the line of a script with the addresses and the time."""
    people = [f"{part}={jid}" for part, jid in asdict(cast).items() if jid]
    return f"# begun {begun} by {', '.join(people)}"


def _close(scene: Scene, lines: list[str]) -> None:
    mark = _MARK.fullmatch(lines[0])
    assert mark is not None
    xml = "\n".join(lines[1:]).strip()
    # The line breaks were added for people.
    xml = re.sub(r">\n\s*<", "><", xml)
    scene.entries.append(RecordedStanza("out" if mark[1] == ">>>" else "in", float(mark[2]), xml))


class Replay:
    """Replays scenes with a driver.

    Args:
        driver: the connection to the target.
        timeout: seconds to wait for each stanza of the script.
    """

    def __init__(self, driver: Driver, timeout: float = TIMEOUT_S) -> None:
        self._driver = driver
        self._timeout = timeout
        self._came: list[Incoming] = []
        self._changed = anyio.Event()
        self._known: dict[str, str] = {}
        self._lane, self._token = _MARK, ""

    async def run(self, scenes: Sequence[Scene]) -> list[str]:
        """Send everything; return lines for a person, those of differences with a `≠`.

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
        cast = self._driver.cast(token, ordered=True)
        lacking = _lacking(scene, cast, self._driver)
        if lacking:
            self._driver.done(token)
            return [f"≠ it is left out: {lacking}"]
        self._known = _people(scene, cast)
        self._lane, self._token = re.compile(_LANE.format(re.escape(scene.name))), token
        self._came.clear()
        playing = _Playing(scene, self._anew, self._deliver)
        places = [self._anew(one) for one in playing.addresses]
        for place in places:
            self._driver.play(place, playing.answer)
        try:
            return await self._entries(scene, cast)
        finally:
            for place in places:
                self._driver.stop(place, playing.answer)
            self._driver.done(token)

    async def _entries(self, scene: Scene, cast: Cast) -> list[str]:
        lines: list[str] = []
        last = scene.entries[0].at
        for entry in scene.entries:
            said = self._anew(entry.xml)
            before, then = _tree(said), _tree(entry.xml)
            pause, last = entry.at - last, entry.at
            if before is None and entry.way == "in":
                lines.append("... what came was too long to be kept, or is no XML: not compared")
            elif before is None:
                lines.append(f"≠ a stanza that was cut or is no XML is left out: {said[:60]!r}")
            elif entry.way == "in" and before.find(f"{{{INFO}}}query") is not None:
                pass  # the target need not ask again what it knows of us
            elif entry.way == "in":
                assert then is not None
                lines += await self._expected(before, then)
            elif not (before.tag == "iq" and _answers(before)):
                if pause >= _PAUSE:
                    await anyio.sleep(pause)
                said = _later(said, scene, entry)
                lines.append(f">>> {said}")
                await self._driver.send(_sender(before, cast), said)
        return lines

    def _anew(self, text: str) -> str:
        """Return a text with the old names and values replaced by the new ones."""
        if self._known:
            names = sorted(self._known, key=len, reverse=True)
            pattern = "|".join(re.escape(name) for name in names)
            text = re.sub(pattern, lambda found: self._known[found[0]], text)
        # After the addresses, because they may contain the lane.
        return self._lane.sub(self._token, text)

    async def _expected(self, before: Element, then: Element) -> list[str]:
        with anyio.move_on_after(self._timeout):
            while not self._like(before, alike=True):
                await self._changed.wait()
        found = self._like(before, alike=True) or self._like(before, alike=False)
        if found is None:
            return [f"≠ nothing came like <{before.tag}/> with {_shape(before)}"]
        self._came.remove(found)
        now = _tree(found.forward())
        assert now is not None
        self._known.update(_learned(then, now))
        same = _shape(before) == _shape(now)
        lines = [f"<<< {found.forward()}"]
        return lines if same else [*lines, f"≠ it was {_shape(before)}, and is {_shape(now)}"]

    def _like(self, before: Element, *, alike: bool) -> Incoming | None:
        """Return the first stanza that corresponds to this one; an IQ's answer is found
        by its id.
        """
        answer = _answers(before)
        for one in self._came:
            if one.kind != before.tag:
                continue
            if one.kind == "iq" and answer and one.type in ("result", "error"):
                if one.id == before.get("id"):
                    return one
                continue
            if one.kind == "iq" and (answer or one.type in ("result", "error")):
                continue
            now = _tree(one.forward())
            if now is not None and (not alike or _shape(now) == _shape(before)):
                return one
        return None


class _Playing:
    """The agent that the kit played in a scene: it repeats its recorded answers."""

    def __init__(self, scene: Scene, anew: Callable[[str], str], told: Deliver) -> None:
        self.addresses: set[str] = set()
        self._anew = anew
        self._told = told
        self._answers: dict[str, list[str]] = {}
        asked: dict[str, Element] = {}
        for entry in scene.entries:
            stanza = _tree(entry.xml)
            if stanza is None or stanza.tag != "iq":
                continue
            if entry.way == "in" and not _answers(stanza):
                asked[stanza.get("id", "")] = stanza
            elif entry.way == "out" and _answers(stanza):
                question = asked.get(stanza.get("id", ""))
                self.addresses.add(stanza.get("from", ""))
                if question is not None and len(question):
                    self._answers.setdefault(question[0].tag, []).append(entry.xml)

    def answer(self, head: Incoming) -> str:
        """Return the recorded answer."""
        self._told(head)
        known = self._answers.get(head.sole_child or "")
        if not known:
            return as_a_client(head)
        xml = self._anew(known.pop(0) if len(known) > 1 else known[0])
        inside = re.sub(r"^<iq[^>]*>", "", xml)
        type_ = "error" if inside.startswith("<error") else "result"
        return (
            f"<iq from={quoteattr(head.to or '')} to={quoteattr(head.sender or '')}"
            f" id={quoteattr(head.id or '')} type='{type_}'>{inside or '</iq>'}"
        )


def _lacking(scene: Scene, cast: Cast, driver: Driver) -> str:
    """Return what the scene needs and this driver does not have; empty if nothing."""
    spoken = {
        found[1]
        for entry in scene.entries
        if entry.way == "out" and (found := re.search(r" from=['\"]([^'\"]+)", entry.xml))
    }
    for part, jid in scene.people.items():
        if part == "peer":
            played = any(jid.partition("/")[0] == one.partition("/")[0] for one in spoken)
            if played and Ability.PEER not in driver.abilities:
                return "it takes an agent, which --component and --acceptor can play."
        elif jid in spoken and getattr(cast, part) is None:
            return f"nobody here plays the {part}."
    return ""


def _people(scene: Scene, cast: Cast) -> dict[str, str]:
    """Return the current addresses by the recorded ones, including bare addresses."""
    found: dict[str, str] = {}
    for part, was in scene.people.items():
        now = getattr(cast, part)
        if now is not None:
            found[was] = now
            found.setdefault(was.partition("/")[0], now.partition("/")[0])
    return {was: now for was, now in found.items() if was != now}


def _later(said: str, scene: Scene, entry: RecordedStanza) -> str:
    """Return a stanza whose times have the same distance from now as in the recording."""
    if scene.begun is None:
        return said
    then = scene.begun + timedelta(seconds=entry.at)
    moved = datetime.now(UTC) - then

    def shifted(found: re.Match[str]) -> str:
        at = datetime.fromisoformat(found[0])
        if abs(at - then) > _NEAR:
            return found[0]
        text = (at + moved).astimezone(UTC).isoformat(timespec="milliseconds")
        return text.replace("+00:00", "Z")

    return _TIME.sub(shifted, said)


def _tree(xml: str) -> Element | None:
    try:
        return fromstring(xml)  # noqa: S314 - written by the kit, which knows no DTD
    except ParseError:
        return None


def _answers(stanza: Element) -> bool:
    return stanza.get("type") in ("result", "error")


def _sender(stanza: Element, cast: Cast) -> str:
    """Return the address whose stream sends a stanza: an address of the kit that is its sender, or
    the caller.
    """
    was = stanza.get("from", "")
    people = [
        one for one in (cast.caller, cast.other, cast.stranger, cast.refused, cast.peer) if one
    ]
    same = [one for one in people if one.partition("/")[0] == was.partition("/")[0]]
    return was if was in people else (same or [cast.caller])[0]


def _learned(before: Element, now: Element) -> Iterator[tuple[str, str]]:
    """Yield the values that the target chose in the recording and now."""
    if before.tag != now.tag:
        return
    if before.tag not in _OWN:
        for name, old in before.items():
            new = now.get(name, old)
            if old != new and len(old) >= _SHORTEST and not _TIME.match(old):
                yield old, new
        old, new = (before.text or "").strip(), (now.text or "").strip()
        if old != new and len(old) >= _LONG_TEXT and not re.search(r"\s", old + new):
            yield old, new
    for one, other in zip(before, now, strict=False):
        yield from _learned(one, other)


def _shape(stanza: Element) -> str:
    """Return what must be equal: the type, and the elements of two levels."""
    names = []
    for child in stanza:
        inside = [part.tag.rpartition("}")[2] for part in child]
        told = [name for name in inside if name != "text"][:2]
        names.append("/".join((child.tag.rpartition("}")[2], *told)))
    return f"{stanza.get('type', 'normal')}: {', '.join(names) or 'nothing'}"
