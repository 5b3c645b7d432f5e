"""Whatever a provider of models does: the turn has an answer or a named failure, memory is level,
nobody else is held up, nothing is stored that cannot be carried, and the next turn is as ever.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from component.agent import sentences
from tests.hostile import dialect_attacks
from tests.hostile.provider import HONEST, Provider, provider_in_thread
from tests.hostile.provider_attacks import ATTACKS, SLOW
from tests.profiles import THOROUGH

pytestmark = pytest.mark.servers
dialect_attacks.add()

GATE: Final = (
    *("an endless line", "endless large text", "endless arguments"),
    *("endless calls", "endless after all was said", "packed as gzip with 200"),
    *("a stream packed as gzip", "an endless error 500", "a deep error in the stream"),
    *("400 with the key in words", "429 with the key as a password"),
    *("an error as 'punycode'", "an error of control characters", "429 for '1e300'"),
    *("redirected by 302", "no answer", "no HTTP", "a cut chunk", "a chunk of 2^63"),
    *("an endless size of a chunk", "a length of -1", "two lengths", "a flood of headers"),
    *("a flood of cookies", "an endless header", "a body that drips", "a header that drips"),
    *("cut after 115 bytes", "usage of 2^64, streamed", "usage of less than nothing, whole"),
    *("usage of no number, streamed", "usage of many digits, streamed"),
    *("half a pair in the text, streamed", "NUL in the name, whole"),
    *("raw control characters in the arguments, streamed", "choices that are none, whole"),
    *("10,000 choices, whole", "a deep event, streamed", "finished by a number, streamed"),
    *("3,000 calls, streamed", "the same id twice, streamed", "a huge id, whole"),
    *("an index of 1.5, streamed", "a huge name, streamed", "a name of another tool, streamed"),
    *("deep arguments, streamed", "arguments of a megabyte, whole"),
    *("arguments of many digits, streamed", "arguments as a list, whole"),
    *("endless reasoning in the text", "endless details", "reasoning without an end, streamed"),
    *("10,000 tags of reasoning, whole", "nested garbage in a call in the text, streamed"),
    *("3,000 calls in the text, streamed", "reasoning_details of a number, streamed"),
    *("messages: endless thinking", "messages: a call of no name", "messages: impossible usage"),
    *("messages: an error of nothing", "messages: a deep block", "messages: {'content': [5]}"),
    *("responses: endless items", "responses: control characters"),
    *("responses: impossible usage", "responses: many calls at the end"),
    *("responses: a failure of nothing", "responses: a cut stream"),
)
"""One attack of each kind, of those that need little time."""

_TIMEOUT_S: Final = 60.0
_SHORT_TIMEOUT_S: Final = 1.0
_BUFFERS: Final = 16 << 20
"""What a provider may have sent that nobody has read: it is in the buffers of the kernel."""
_BYTES_A_STEP: Final = 8 << 20
"""How much is taken in, at most, before everybody else has a turn."""
_RSS_KIB: Final = 200 << 10
"""How much the memory may grow by all attacks together."""

RESULT: Final = "look is done"
"""The result of the skill, in place of an answer that repeats what the model has said before."""
NAMED: Final = tuple(
    text
    for name, text in vars(sentences).items()
    if isinstance(text, str) and name.isupper() and text != sentences.BROKE
)


def _is_text(name: str) -> bool:
    """Whether an attack is an answer that is as good as any other, once it is fit to be sent."""
    return " in the text" in name or name.startswith("a text of")


class Child:
    """The agent that is attacked."""

    def __init__(self, backend: str, provider: Provider, path: Path) -> None:
        self._provider = provider
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.hostile.provider_child", backend, provider.url, path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.first_rss_kib = self.attacked_by("nothing that is known")["rss_kib"]

    def attacked_by(self, name: str) -> dict[str, Any]:
        """Let it be attacked; what came of it, and `sent`, the bytes of the attack."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        timeout_s = _SHORT_TIMEOUT_S if name in SLOW else _TIMEOUT_S
        self._provider.sent = 0
        print(json.dumps([name, timeout_s]), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        assert line, f"the process has ended with {self._process.wait()}"
        told: dict[str, Any] = json.loads(line)
        return told | {"sent": self._provider.sent}

    @property
    def dead(self) -> bool:
        """Whether an attack has ended it."""
        return self._process.poll() is not None

    def close(self) -> None:
        """End it."""
        with self._process:
            if not self.dead:
                assert self._process.stdin is not None
                self._process.stdin.close()
                assert self._process.wait(60) == 0


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with provider_in_thread(ATTACKS) as provider:
        yield provider


@pytest.fixture(scope="module")
def children(
    provider: Provider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Child]]:
    """The agent on an event loop, the same each time."""
    known: dict[str, Child] = {}
    with ExitStack() as stack:

        def child(backend: str) -> Child:
            if backend not in known or known[backend].dead:
                path = tmp_path_factory.mktemp(backend)
                known[backend] = Child(backend, provider, path)
                stack.callback(known[backend].close)
            return known[backend]

        yield child


def each() -> Iterator[Any]:
    """Every attack on each event loop, and in the gate one of each kind on one of them."""
    assert ATTACKS.keys() >= set(GATE)
    for backend in ("trio", "asyncio") if THOROUGH else ("trio",):
        for name in ATTACKS:
            marks = () if name in GATE else pytest.mark.thorough
            yield pytest.param(backend, name, id=f"{backend}-{name}", marks=marks)


@pytest.mark.parametrize(("backend", "name"), [*each()])
def test_an_attack_ends_in_an_answer_or_a_named_failure(
    children: Callable[[str], Child], backend: str, name: str
) -> None:
    child = children(backend)
    told = child.attacked_by(name)
    attacked = told["attacked"]
    (said,) = attacked["said"]
    assert said.startswith((*NAMED, RESULT)) or HONEST in said or _is_text(name)
    assert "I must not say this" not in said
    assert not told["broken"]
    assert not told["keys"]
    assert not attacked["unfit"]
    taken_in = max(0, told["sent"] - _BUFFERS)
    assert attacked["steps"] >= taken_in / _BYTES_A_STEP, f"{taken_in:,} bytes held up the others"
    assert told["after"]["said"] == [HONEST]
    assert 0 <= told["tokens"] < 2**53
    assert told["rss_kib"] - child.first_rss_kib < _RSS_KIB
