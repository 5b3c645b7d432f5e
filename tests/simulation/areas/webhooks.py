"""Other services that deliver events over HTTP, and deliver them again."""

import base64
import hmac
import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from hashlib import sha256
from random import Random
from typing import Any, ClassVar, Final, Literal
from xml.etree import ElementTree as ET

import anyio
from anyio.abc import TaskStatus

from component.skills import Context, Skill, skill
from tests.kit.http import post, without_sockets
from tests.simulation.area import Area
from tests.simulation.history import Effect, Entry, Fault, KeptOut, Wish
from tests.simulation.life import Action
from tests.simulation.rules import Rule, Violation

Kind = Literal["generic", "github"]
SENDER: Final = "sender@hooks"
"""Who delivers, in the history."""
PER_MINUTE: Final = 5
"""Deliveries of one kind that may start work in a minute."""
_KEY: Final = bytes(range(32))
_SECRET: Final = "it is between you and me"
_GIVES_UP_S: Final = 12 * 3600.0
_PRINCIPAL: Final = "nurse@capulet.example"


class Deliver(Action, frozen=True, kw_only=True):
    """Events are delivered at the same time, each until it is accepted, and once more after
    `again_s`.
    """

    kind: Kind
    number_of_events: int
    copies: int
    again_s: float | None


def _deliver(chance: Random, at: float, number: int) -> Deliver:
    kind: Kind = chance.choice(("generic", "github"))
    return Deliver(
        at=at,
        number=number,
        kind=kind,
        number_of_events=chance.choice((1, 1, 1, 1, 7)),
        copies=chance.choice((1, 1, 1, 2)),
        again_s=chance.choice((None, 1.0, 4 * 3600.0)),
    )


_ASIDE: Final = re.compile(r"I could not finish this: (?:Hooked|Replied)\..*\(task (\w+)\)")


class Deliveries(Rule):
    """What was accepted is done once, and its result is sent back once."""

    def __init__(self) -> None:
        self._accepted: dict[str, str] = {}
        """The task of each event that was accepted."""
        self._duplicate: set[str] = set()
        """Events that were said to be accepted before."""
        self._unsure: set[str] = set()
        """Events of which a delivery has had no answer that says what has become of it."""
        self._done: set[str] = set()
        self._aside: set[str] = set()
        """The tasks that are set aside until an operator decides: of work, and of replies."""
        self._sent: dict[str, float] = {}
        self._open: dict[str, set[str]] = defaultdict(set)
        """The deliveries of each event that have no answer yet."""
        self._times: dict[str, list[tuple[float, float]]] = {}

    def saw(self, entry: Entry, stanza: ET.Element | None) -> None:
        if isinstance(entry, Fault) and entry.kind == "start":
            self._times.clear()
        elif isinstance(entry, Effect):
            self._done.add(entry.label)
        elif isinstance(entry, Wish) and entry.who == SENDER:
            self._delivery(entry.at, entry.text.split())
        elif isinstance(entry, KeptOut):
            self._hear(ET.fromstring(entry.xml))
        elif stanza is not None:
            self._hear(stanza)

    def _hear(self, stanza: ET.Element) -> None:
        self._aside.update(_ASIDE.findall(stanza.findtext("{*}body", "")))

    def _delivery(self, at: float, words: list[str]) -> None:
        if words[0] == "hears":
            self._open[words[1]].discard(words[2])
        match words:
            case ["delivers", label, number]:
                self._sent[number] = at
                self._open[label].add(number)
            case ["hears", label, number, "accepted", kind, task]:
                if label in self._accepted:
                    raise Violation(f"{label} was accepted twice")
                self._accepted[label] = task
                self._check_rate(kind, self._sent[number], at)
            case ["hears", label, _, "duplicate", *tasks]:
                is_known = label in self._accepted or label in self._unsure or self._open[label]
                if not is_known:
                    raise Violation(f"{label} is called a duplicate, and was never accepted")
                before = self._accepted.get(label)
                if before and tasks and before != tasks[0]:
                    raise Violation(f"{label} has two tasks: {before} and {tasks[0]}")
                self._duplicate.add(label)
            case ["hears", label, _, "nothing"]:
                self._unsure.add(label)

    def _check_rate(self, kind: str, sent: float, answered: float) -> None:
        times = self._times.setdefault(kind, [])
        times.append((sent, answered))
        for begin, _ in times:
            number = sum(first >= begin for first, _ in times)
            if number > PER_MINUTE * (1 + (answered - begin) / 60) + 1e-6:
                raise Violation(f"{number} deliveries were accepted in {answered - begin:.0f} s")

    def at_rest(self) -> None:
        missing = {
            f"{label} was accepted, and never {work}"
            for label in (*self._accepted, *self._duplicate)
            if self._accepted.get(label) not in self._aside
            for work in ("hooked", "replied")
            if f"{label}.{work}.again" not in self._done
        }
        others = self._aside - set(self._accepted.values())
        if len(missing) > len(others):
            raise Violation(str(sorted(missing)))


class Webhooks(Area):
    """Services that deliver events over HTTP."""

    draws: ClassVar = {_deliver: 4}
    actions = (Deliver,)
    rules = (Deliveries,)
    settings: ClassVar = {
        "http": {"port": 8470},
        "webhook": [
            {
                "name": kind,
                "kind": kind,
                "secret": secret,
                "skill": "hooked",
                "params": {"label": "label"},
                "principal": _PRINCIPAL,
                "per_minute": PER_MINUTE,
                "reply": {"skill": "replied", "params": {"label": "label"}},
            }
            for kind, secret in (
                ("generic", f"whsec_{base64.b64encode(_KEY).decode()}"),
                ("github", _SECRET),
            )
        ],
    }

    def skills(self) -> Sequence[Skill]:
        """Return the skill that handles an event, and the one that answers it."""
        outside = self.world.outside

        @skill(destructive=False, open_world=False, durable=True)
        async def hooked(label: str, context: Context) -> str:
            """Handle an event."""
            work = partial(outside.do, f"{label}.hooked.again", "s0")
            await context.step("s0", work, str, repeatable=True)
            return f"hooked {label}"

        @skill(destructive=False, open_world=False, durable=True)
        async def replied(label: str, text: str, context: Context) -> str:
            """Answer an event."""
            del text
            work = partial(outside.do, f"{label}.replied.again", "s0")
            await context.step("s0", work, str, repeatable=True)
            return f"replied {label}"

        return (hooked, replied)

    async def begin(self) -> None:
        """Let requests arrive without sockets."""
        self._requests = 0
        await self.world.group.start(_without_sockets)

    async def perform(self, action: Any) -> None:
        """Deliver events."""
        assert isinstance(action, Deliver)
        async with anyio.create_task_group() as group:
            for number in range(action.number_of_events):
                for _ in range(action.copies):
                    label = f"h{100 * action.number + number}"
                    group.start_soon(self._deliver, action.kind, label, action.again_s)

    async def _deliver(self, kind: Kind, label: str, again_s: float | None) -> None:
        began, wait_s = self.world.history.now(), 1.0
        while self.world.history.now() - began < _GIVES_UP_S:
            if await self._send(kind, label):
                break
            await anyio.sleep(wait_s * (1 + self.world.chance.random()))
            wait_s = min(2 * wait_s, 1800.0)
        if again_s is not None:
            await anyio.sleep(again_s)
            await self._send(kind, label)

    async def _send(self, kind: Kind, label: str) -> bool:
        """Deliver an event; return whether it was taken."""
        world = self.world
        self._requests += 1
        number = self._requests
        body = json.dumps({"label": label}).encode()
        if kind == "generic":
            headers = generic_headers(label, body, world.system.time_ns() / 1e9)
        else:
            headers = github_headers(f"{label}-{number}", body)
        self._tell(f"delivers {label} {number}")
        response = await post(world.kit, f"/{kind}", headers, body)
        if response is None or response.status == 503:
            self._tell(f"hears {label} {number} nothing")
            return False
        if response.status in (200, 202):
            answer = response.json
            of = (kind,) if answer["status"] == "accepted" else ()
            words = (label, str(number), answer["status"], *of, answer.get("task") or "")
            self._tell(f"hears {' '.join(words)}".strip())
            return True
        self._tell(f"hears {label} {number} refused {response.status}")
        return False

    def _tell(self, text: str) -> None:
        self.world.history.add(Wish(self.world.history.now(), SENDER, text))


def generic_headers(id_: str, body: bytes, at: float) -> Mapping[str, str]:
    """Return the headers of a delivery that follows Standard Webhooks."""
    signed = b".".join((id_.encode(), str(int(at)).encode(), body))
    digest = hmac.new(_KEY, signed, sha256).digest()
    return {
        "content-type": "application/json",
        "webhook-id": id_,
        "webhook-timestamp": str(int(at)),
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }


def github_headers(id_: str, body: bytes) -> Mapping[str, str]:
    """Return the headers of a delivery of GitHub."""
    digest = hmac.new(_SECRET.encode(), body, sha256).hexdigest()
    return {
        "content-type": "application/json",
        "x-github-event": "push",
        "x-github-delivery": id_,
        "x-hub-signature-256": f"sha256={digest}",
    }


async def _without_sockets(*, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
    async with without_sockets():
        task_status.started()
        await anyio.sleep_forever()
