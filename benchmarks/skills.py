"""Measures the cost of a skill beyond its own work, and whether many skills cost more than few.

    python -m benchmarks.skills

Each value is the median of five rounds, in CPU time, so that other load matters less. Ratios are
comparable between machines, absolute values are not.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from component.skills import Registry, Skill, call_inline, prepare, skill
from component.skills.builtin import echo
from component.skills.conformance_fixtures import conformance_skills

ROUNDS = 5
FEW, MANY = 10, 10_000


def main() -> None:
    few, many = _registry(FEW), _registry(MANY)
    add = next(each for each in conformance_skills() if each.name == "conformance.add")
    bare = measure(lambda: echo.function("hello"))
    print(f"echo, called as a function           {bare:8.2f} µs")
    print(f"echo, through prepare and call       {measure(lambda: _execute(echo)):8.2f} µs")
    numbers = (("a", "1"), ("b", "2"))
    print(f"add of two integers, as text         {measure(lambda: _run(add, numbers)):8.2f} µs")
    sent = b'{"a": 1, "b": 2}'
    print(f"add of two integers, as JSON         {measure(lambda: _run(add, (), sent)):8.2f} µs")

    # Interleaved, so that other load affects both alike.
    pairs = [(_once(lambda: _ask(few)), _once(lambda: _ask(many))) for _ in range(4 * ROUNDS)]
    ten, thousands = (statistics.median(side) for side in zip(*pairs, strict=True))
    print(f"view, look-up and execute, {FEW:6} skills {ten:6.2f} µs")
    print(f"view, look-up and execute, {MANY:6} skills {thousands:6.2f} µs")
    print(f"  ratio                              {thousands / ten:8.2f}")

    for registry, size in ((_registry(200), 200), (many, MANY)):
        start = time.process_time()
        view = registry.view("listed", _everything)
        view.names()
        first = (time.process_time() - start) * 1e3
        again = measure(lambda view=view: view.names(), 2_000)  # type: ignore[misc]
        print(f"names of {size:6} skills, once          {first:8.2f} ms")
        print(f"names of {size:6} skills again          {again:8.2f} µs")
        words = map(str, range(10**9))
        found = measure(lambda view=view, words=words: view.names(f"skill {next(words)}"), 20)  # type: ignore[misc]
        print(f"new search among {size:6} skills        {found:8.2f} µs")


def measure(work: Callable[[], object], times: int = 50_000) -> float:
    """Return the median cost of one call in microseconds."""
    return statistics.median(_once(work, times) for _ in range(ROUNDS))


def _once(work: Callable[[], object], times: int = 20_000) -> float:
    start = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - start) / times * 1e6


def _run(made: Skill, texts: tuple[tuple[str, str], ...], json: bytes | None = None) -> object:
    return call_inline(made, prepare(made, texts, json))


def _execute(made: Skill) -> object:
    return _run(made, (("text", "hello"),))


def _ask(registry: Registry) -> object:
    found = registry.view("everyone", _everything).get("echo")
    assert found is not None
    return _execute(found)


def _everything(_: str) -> bool:
    return True


def _registry(size: int) -> Registry:
    def numbered(number: int) -> Skill:
        @skill(name=f"skill-{number:05}", tags=("numbered",), inline=True)
        def work(text: str) -> str:
            """Do what skills do, with a description of a usual length, so that it says something.

            Args:
                text: What to do it with.
            """
            return text

        return work

    return Registry([echo, *(numbered(number) for number in range(size - 1))])


if __name__ == "__main__":
    main()
