"""Skills that do what a script says, and what the world outside sees of them.

A script is a list; its parts are done one after another, and each gives a word of the result:

| part | the skill |
|---|---|
| `["step"]` | does a step with an effect |
| `["fan", n, by]` | does `n` of them side by side, told apart by `key` or by `input` |
| `["both", n]` | asks its principal beside `n` of them |
| `["ask"]` | asks |
| `["sleep"]` | sleeps for a minute |
| `["hold"]` | waits, between steps, until it is let on |
| `["tree", scripts]` | starts a child for each script, and waits for them |
| `["flaky", n]` | fails `n` times |
| `["broken"]` | fails while its label is `broken` |
| `["shaky"]` | does a step that may be repeated, and that fails while its label is `broken` |
"""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import partial
from typing import Any, Final, Protocol

import anyio
import msgspec
from anyio.lowlevel import checkpoint

from component.skills import Context, Skill, skill

Script = list[Any]
SLEEP_S: Final = 60.0


class Choice(msgspec.Struct, forbid_unknown_fields=True):
    colour: str


class Process(Protocol):
    """Where a skill runs; `gone` when that was killed, `draining` when it ends in good order."""

    gone: bool
    draining: bool


def answer_to(question: str) -> str:
    """What people answer."""
    return f"<{question}>"


def result_of(label: str, script: Script) -> str:
    """What a script returns if nothing stops it."""
    return " ".join(_word(f"{label}.{place}", part) for place, part in enumerate(script))


def _word(here: str, part: Any) -> str:
    match part:
        case ["step"] | ["shaky"]:
            return f"did {here}"
        case ["fan", number, _]:
            return " ".join(f"did {here}/{item}" for item in range(number))
        case ["ask"]:
            return answer_to(here)
        case ["both", number]:
            done = [f"did {here}/{item}" for item in range(number)]
            return " ".join([*done, answer_to(here)])
        case ["tree", scripts]:
            return " ".join(
                f"completed: {result_of(f'{here}/{number}', one)};"
                for number, one in enumerate(scripts)
            )
    return part[0]


class Stage:
    """Runs the scripts. It outlives the processes, as the world outside.

    Attributes:
        wrong: what must not have happened.
        broken: labels of work that fails.
    """

    def __init__(self, pace: Any) -> None:
        self.wrong: list[str] = []
        self.broken: set[str] = set()
        self._pace: Any = pace
        self._open: set[str] = set()
        self._holding: dict[str, anyio.Event] = {}
        self.all_open = False
        """Nothing holds any more."""
        self._begun: Counter[str] = Counter()
        """How often an effect was begun under an idempotency key."""
        self._done: set[str] = set()
        """Keys of steps that a skill was told to be done."""
        self._keys: dict[str, set[str]] = defaultdict(set)
        self._failures: Counter[str] = Counter()
        self._frames: Counter[tuple[int, str]] = Counter()
        """How many executions of a task run in one process."""

    def skills(self, process: Process) -> list[Skill]:
        """`play` has effects, `calm` may run twice; `queued` goes through a queue, `retried` is
        tried again, and a release that has `newer` is newer than one that has not.
        """
        made: list[Skill] = []
        declared: dict[str, dict[str, Any]] = {
            "play": {"durable": True},
            "calm": {"idempotent": True},
            "queued": {"durable": True, "queue": "q"},
            "retried": {"durable": True, "attempts": 4, "backoff_s": 30},
            "newer": {"durable": True},
        }
        for name, how in declared.items():

            @skill(name=name, **how)
            async def play(label: str, script: str, slow: int, context: Context) -> str:
                return await self._play(process, label, script, slow, context)

            made.append(play)
        return made

    async def _play(
        self, process: Process, label: str, text: str, slow: int, context: Context
    ) -> str:
        host: Any = context._host
        frame = (id(process), host.task)
        self._frames[frame] += 1
        self._must(self._frames[frame] == 1, f"{label} runs twice in one process")
        script: Script = msgspec.json.decode(text)
        words = []
        try:
            for place, part in enumerate(script):
                await self._pace()
                words.append(await self._do(process, f"{label}.{place}", part, label, context))
            return " ".join(words)
        finally:
            with anyio.CancelScope(shield=True):
                self._pace.busy += 1
                for _ in range(slow):
                    if process.gone:
                        break
                    await checkpoint()
                self._pace.busy -= 1
            self._frames[frame] -= 1

    async def _do(
        self, process: Process, here: str, part: Any, label: str, context: Context
    ) -> str:
        match part:
            case ["step"]:
                return await self._step(process, context, "step", here)
            case ["fan", number, by]:
                return await self._fan(process, context, here, number, by)
            case ["both", number]:
                answers: list[str] = []

                async def ask() -> None:
                    await self._pace()
                    answers.append((await context.ask(here, Choice, key="q")).colour)

                async with anyio.create_task_group() as group:
                    group.start_soon(ask)
                    done = await self._fan(process, context, here, number, "key")
                return " ".join([done, *answers])
            case ["ask"]:
                return (await context.ask(here, Choice)).colour
            case ["sleep"]:
                await context.sleep(SLEEP_S)
            case ["hold"]:
                if not (self.all_open or process.draining or here in self._open):
                    await self._holding.setdefault(here, anyio.Event()).wait()
            case ["tree", scripts]:
                return await self._tree(context, here, scripts)
            case ["shaky"]:
                return await self._shaky(context, here, label)
            case ["flaky", _] | ["broken"]:
                self._fail(here, part, label)
        return part[0]  # type: ignore[no-any-return]  # it is a script's

    def _fail(self, here: str, part: Any, label: str) -> None:
        if part == ["broken"]:
            failing = label in self.broken
        else:
            failing = self._failures[here] < part[1]
            self._failures[here] += 1
        if failing:
            raise RuntimeError("as the script says")

    def let_on(self) -> None:
        """Let on all that hold now."""
        for here, event in self._holding.items():
            self._open.add(here)
            event.set()
        self._holding.clear()

    async def _fan(
        self, process: Process, context: Context, here: str, number: int, by: str
    ) -> str:
        found: dict[int, str] = {}

        async def one(item: int) -> None:
            await self._pace()
            path = f"{here}/{item}"
            how: dict[str, Any] = {by: path}
            found[item] = await self._step(process, context, "fetch", path, **how)

        async with anyio.create_task_group() as group:
            for item in range(number):
                group.start_soon(one, item)
        return " ".join(found[item] for item in range(number))

    async def _tree(self, context: Context, here: str, scripts: list[Script]) -> str:
        tasks = []
        for number, script in enumerate(scripts):
            params = {
                "label": f"{here}/{number}",
                "script": msgspec.json.encode(script).decode(),
                "slow": 0,
            }
            tasks.append(await context.start("play", params, key=f"{here}/{number}"))
        ended = await context.wait(tasks, on_failure="return", key=here)
        return " ".join(f"{one.state}: {one.text};" for one in ended)

    async def _step(
        self, process: Process, context: Context, name: str, here: str, **how: Any
    ) -> str:
        work = partial(self._effect, process, here, once=context.skill != "calm")
        keys: list[str] = []

        async def noted(key: str) -> str:
            keys.append(key)
            return await work(key)

        done = await context.step(name, noted, str, **how)
        self._done.update(keys)
        self._must(done == f"did {here}", f"{here} got {done}")
        return done

    async def _shaky(self, context: Context, here: str, label: str) -> str:
        async def work(key: str) -> str:
            self._keys[here].add(key)
            # What ran without a task is forgotten with its process.
            self._must(context.skill == "calm" or len(self._keys[here]) == 1, f"{here}: two keys")
            if label in self.broken:
                raise OSError("shaky")
            return f"did {here}"

        return await context.step("shaky", work, str, repeatable=True)

    async def _effect(self, process: Process, here: str, key: str, *, once: bool) -> str:
        if not process.gone:
            self._begun[key] += 1
            self._keys[here].add(key)
            self._must(not once or self._begun[key] == 1, f"{here} had its effect twice")
            self._must(not once or len(self._keys[here]) == 1, f"{here} has two keys")
            self._must(key not in self._done, f"{here} was done, and is done again")
        await self._pace()
        return f"did {here}"

    def _must(self, so: bool, else_: str) -> None:
        if not so:
            self.wrong.append(else_)
