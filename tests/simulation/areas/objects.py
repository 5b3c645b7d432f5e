"""People whose programs store objects, several of them at the same time."""

import json
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Any, ClassVar, Final, Literal
from xml.etree import ElementTree as ET

import anyio
import msgspec

from component.skills import Context, Skill, skill
from tests.simulation.area import Area
from tests.simulation.history import Effect, Entry, Fault, Wish
from tests.simulation.life import Action
from tests.simulation.people import Resident
from tests.simulation.rules import EXECUTE, Rule, Violation

How = Literal["compare", "merge"]
OWNER: Final = "juliet"
TYPE: Final = "list"
WATCH: Final = {
    "name": "objects",
    "service": "agent.capulet.example",
    "node": f"urn:fluux:agent:0#object/{OWNER}@capulet.example/{TYPE}",
    "principal": f"{OWNER}@capulet.example",
    "skill": "changed",
    "params": {"label": "{json.data.last}"},
    "rate": "999/s",
    "starts_per_hour": 100_000,
}
"""The watch of the objects of this area; the settings of watches are those of another one."""
_OBJECTS: Final = 3
_ATTEMPTS: Final = 6
_GIVES_UP_S: Final = 6 * 3600.0
_SETTLED_S: Final = 60.0


class Change(Action, frozen=True, kw_only=True):
    """Words are added to an object at the same time: to a list, by comparing its version
    (`compare`), or as members of their own (`merge`).
    """

    object: int
    how: How
    words: int


class Look(Action, frozen=True, kw_only=True):
    """An object is read."""

    object: int
    how: How


def _change(chance: Random, at: float, number: int) -> Change:
    how: How = chance.choice(("compare", "compare", "merge"))
    place, words = chance.randrange(_OBJECTS), chance.choice((1, 1, 2, 3))
    return Change(at=at, number=number, object=place, how=how, words=words)


def _look(chance: Random, at: float, number: int) -> Look:
    how: How = chance.choice(("compare", "merge"))
    return Look(at=at, number=number, object=chance.randrange(_OBJECTS), how=how)


class Updates(Rule):
    """What was stored stays, in the order of the versions, and a watch sees the last version."""

    def __init__(self) -> None:
        self._stored: dict[str, dict[int, str]] = defaultdict(dict)
        """By object: the word of each version that was acknowledged."""
        self._found: dict[str, tuple[int, list[str]]] = {}
        """By object: the highest version that was read, and its words."""
        self._expected: dict[str, set[str]] = {}
        """By the number of a read: the words that had been acknowledged when it began."""
        self._times: dict[str, float] = {}
        self._faults: list[float] = []
        self._seen: list[str] = []

    def saw(self, entry: Entry, stanza: ET.Element | None) -> None:
        if isinstance(entry, Fault):
            self._faults.append(entry.at)
        elif isinstance(entry, Effect) and entry.label.endswith(".changed.again"):
            self._seen.append(entry.label.partition(".")[0])
        elif isinstance(entry, Wish):
            match entry.text.split():
                case ["has", "stored", word, "in", name, "as", version]:
                    self._acknowledged(name, word, int(version))
                    self._times[word] = entry.at
                case ["begins", "to", "read", name, number]:
                    self._expected[number] = set(self._stored.get(name, {}).values())
                case ["finds", name, number, version, *words]:
                    self._read(name, number, int(version), words)

    def _acknowledged(self, name: str, word: str, version: int) -> None:
        before = self._stored[name].setdefault(version, word)
        if before != word:
            raise Violation(f"version {version} of {name} was stored for {before} and for {word}")

    def _read(self, name: str, number: str, version: int, words: list[str]) -> None:
        lost = self._expected.pop(number) - set(words)
        if lost:
            raise Violation(f"version {version} of {name} has lost {sorted(lost)}")
        before, known = self._found.get(name, (0, []))
        older, newer = (known, words) if before <= version else (words, known)
        if older != newer[: len(older)] and name.startswith("compare"):
            raise Violation(f"the words of {name} were {older}, and are {newer} later")
        if not set(older) <= set(newer):
            raise Violation(f"{name} has lost {sorted(set(older) - set(newer))}")
        if before <= version:
            self._found[name] = version, words

    def at_rest(self) -> None:
        for name, stored in self._stored.items():
            version, words = self._found.get(name, (0, []))
            if version < max(stored):
                raise Violation(f"{name} has version {version}, and {max(stored)} was stored")
            last = stored.get(version)
            if last is not None and last not in self._seen:
                raise Violation(f"the watch has never started work for {last}, the last of {name}")
            for word in stored.values():
                if word not in words:
                    raise Violation(f"{name} has lost {word} at the end")
                self._check_seen(word)

    def _check_seen(self, word: str) -> None:
        begin, end = self._times[word] - _SETTLED_S, self._times[word] + _SETTLED_S
        if word not in self._seen and not any(begin <= at <= end for at in self._faults):
            raise Violation(f"the watch has never started work for {word}")


class Objects(Area):
    """People whose programs store objects."""

    draws: ClassVar = {_change: 4, _look: 1}
    actions = (Change, Look)
    rules = (Updates,)

    def skills(self) -> Sequence[Skill]:
        """Return the skill of the watch."""
        outside = self.world.outside

        @skill(destructive=False, open_world=False, durable=True)
        async def changed(label: str, context: Context) -> str:
            """Handle a version of an object."""
            work = partial(outside.do, f"{label}.changed.again", "s0")
            await context.step("s0", work, str, repeatable=True)
            return f"changed {label}"

        return (changed,)

    async def begin(self) -> None:
        """Count the calls, and remember which objects there may be."""
        self._calls = 0
        self._names: dict[str, None] = {}

    async def perform(self, action: Any) -> None:
        """Change or read an object."""
        owner = self.world.residents[OWNER]
        if isinstance(action, Look):
            await self._read(owner, f"{action.how}-{action.object}")
            return
        assert isinstance(action, Change)
        name = f"{action.how}-{action.object}"
        self._names[name] = None
        add = self._compare if action.how == "compare" else self._merge
        async with anyio.create_task_group() as group:
            for number in range(action.words):
                group.start_soon(add, owner, name, f"o{10 * action.number + number}")

    def heal(self) -> None:
        """Read everything when it is quiet again."""
        self.world.group.start_soon(self._look_at_all)

    async def _look_at_all(self) -> None:
        await anyio.sleep(24 * 3600)
        for name in self._names:
            await self._read(self.world.residents[OWNER], name)

    async def _compare(self, owner: Resident, name: str, word: str) -> None:
        for _ in range(_ATTEMPTS):
            found = await self._read(owner, name)
            if found is None or word in found[1]:
                return
            version, words = found
            data = {"words": [*words, word], "last": word}
            if await self._put(owner, name, word, {"data": data, "if_version": version}):
                return
            await anyio.sleep(self.world.chance.random())

    async def _merge(self, owner: Resident, name: str, word: str) -> None:
        if await self._read(owner, name) == (0, []):
            await self._call(owner, "object_put", {"id": name, "data": {}, "if_version": 0})
        await self._put(owner, name, word, {"data": {word: True, "last": word}, "merge": True})

    async def _put(self, owner: Resident, name: str, word: str, params: dict[str, Any]) -> bool:
        made = await self._call(owner, "object_put", {"id": name, **params})
        if made is None:
            return False
        owner.wants(f"has stored {word} in {name} as {made['version']}")
        return True

    async def _read(self, owner: Resident, name: str) -> tuple[int, list[str]] | None:
        """Return the version and the words of an object; None if it cannot be read."""
        number = self._calls + 1
        owner.wants(f"begins to read {name} {number}")
        found = await self._call(owner, "object_query", {"filter": {}, "limit": 100})
        if found is None:
            return None
        of_it = [one for one in found["objects"] if one["id"] == name]
        version, words = 0, []
        if of_it:
            version, data = of_it[0]["version"], of_it[0]["data"]
            words = data.get("words") or [one for one in data if one != "last"]
        owner.wants(f"finds {name} {number} {version} {' '.join(words)}".strip())
        return version, words

    async def _call(self, owner: Resident, name: str, params: dict[str, Any]) -> Any:
        """Return the result of a skill; None if it has failed or is not known. A call is repeated
        with the same request until its outcome is known.
        """
        self._calls += 1
        request = f"objects-{self._calls}"
        text = json.dumps({"type": TYPE, **params})
        payload = (
            f"<execute xmlns='{EXECUTE[1:-1]}' skill='{name}' mode='auto' request='{request}'>"
            f"<params type='application/json'>{text}</params></execute>"
        )
        began, wait_s = self.world.history.now(), 1.0
        while self.world.history.now() - began < _GIVES_UP_S:
            answer = await owner.iq("set", payload, request)
            if answer is not None:
                result, error = answer.find(f"{EXECUTE}result"), answer.find("{*}error")
                if result is not None:
                    is_good = result.get("is-error", "false") == "false"
                    return msgspec.json.decode("".join(result.itertext())) if is_good else None
                if error is not None and error.get("type") != "wait":
                    return None
            await anyio.sleep(wait_s)
            wait_s = min(2 * wait_s, 600.0)
        return None
