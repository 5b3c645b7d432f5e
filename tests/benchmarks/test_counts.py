"""What one request costs in calls, threads and commits is in `benchmarks/counts.json`.

A change that raises a count writes the table in the same commit: `make bench ONLY=counts`, or
`python -m benchmarks.counts` for the exact counts alone. To see the calls of a path, run `python -m
benchmarks.counted --show chat`.
"""

import pytest

from benchmarks import counts
from benchmarks.counted import REPEATED

pytestmark = pytest.mark.ports


def test_the_counts_of_each_path_are_those_of_the_table() -> None:
    exact = {
        path: {title: count for title, count in found.items() if title not in counts.OUTSIDE}
        for path, found in counts.stored().items()
    }
    assert counts.counted() == exact


def test_system_calls_are_counted_between_two_marks_without_those_of_the_server() -> None:
    call = "1 epoll_wait(3, [], 2, 0) = 0"
    lines = [
        call,
        '1 access("/counted/chat/7", F_OK) = -1',
        *[call, "1 recvfrom(7, 0x1, 2) = 1", "2 futex(0x1 <unfinished ...>"] * REPEATED,
        "2 <... futex resumed>) = 0",
        "1 --- SIGCHLD {} ---",
        '1 access("/counted/chat/7", F_OK) = -1',
        call,
    ]
    assert counts.between_marks(lines) == {"chat": 2}
