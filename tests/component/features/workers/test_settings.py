"""Two lines of TOML are a queue of workers; a worker needs no server."""

from collections.abc import Callable

import pytest

from component.config import Settings
from component.features.workers.settings import QUEUES, WORKER
from tests.component.smallest_settings import SMALLEST

QUEUE = 'database = "postgresql://agent:${PASSWORD}@db.example.com/queue"\n'
Read = Callable[..., Settings]
Problems = Callable[..., list[str]]


def test_two_lines_are_a_queue(read: Read) -> None:
    (entry,) = read(SMALLEST + f"[[workers]]\n{QUEUE}", PASSWORD="s3cret")[QUEUES]
    assert entry.queue == "default"
    assert entry.skills == ("*",)
    assert entry.database.get_secret_value() == "postgresql://agent:s3cret@db.example.com/queue"
    assert "s3cret" not in repr(entry)


def test_a_worker_needs_no_server(read: Read) -> None:
    settings = read(f'[worker]\n{QUEUE}[skills]\nmodules = ["a.py"]\n', PASSWORD="s3cret")
    assert settings.is_worker
    worker = settings[WORKER]
    assert worker is not None
    assert worker.concurrency == 4


def test_a_machine_can_have_both(read: Read) -> None:
    settings = read(SMALLEST + f"[worker]\n{QUEUE}[[workers]]\n{QUEUE}", PASSWORD="s3cret")
    assert not settings.is_worker


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        ("[[workers]]\nqueue = 'a'\n", "workers[0].database is missing"),
        ("[[workers]]\ndatabase = 'mysql'\n", "must be a connection string of PostgreSQL"),
        (f"[[workers]]\n{QUEUE}queue = 'a b'\n", "which is not a name"),
        (f"[[workers]]\n{QUEUE}[[workers]]\n{QUEUE}", "has the queue 'default' twice"),
        (f"[worker]\n{QUEUE}lost_after_s = 0.1\n", "worker.lost_after_s"),
    ],
)
def test_mistakes_are_sentences(problems: Problems, lines: str, what: str) -> None:
    found = problems(SMALLEST + lines, PASSWORD="s3cret")
    assert len(found) == 1
    assert what in found[0]
    assert "s3cret" not in found[0]
