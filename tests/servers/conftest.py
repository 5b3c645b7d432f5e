"""What the tests of the whole service share: the service as a process of its own."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.servers import forked
from tests.servers.agent_process import AgentProcess
from tests.servers.base import Server
from tests.servers.chatting import chat
from tests.servers.owned import owned
from tests.servers.site import juliet, mallory, romeo, site
from tests.servers.tasking import caller, desk, other

# pytest finds fixtures by their names in here.
__all__ = [
    "caller",
    "chat",
    "desk",
    "juliet",
    "make_agent",
    "mallory",
    "other",
    "owned",
    "romeo",
    "site",
]

MakeAgent = Callable[..., AgentProcess]


def pytest_sessionfinish() -> None:
    """End what services were forked from."""
    forked.close()


@pytest.fixture
def make_agent(tmp_path: Path) -> Iterator[MakeAgent]:
    """Start services of the test's own; called as `AgentProcess`, with `name` for the directory."""
    with ExitStack() as stack:

        def make(server: Server, name: str = "agent", **options: object) -> AgentProcess:
            directory = tmp_path / name
            return stack.enter_context(AgentProcess(server, directory, **options))  # type: ignore[arg-type]

        yield make
