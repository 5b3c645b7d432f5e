"""Requests reach a service without sockets, and a connection ends with the process."""

from pathlib import Path

import anyio
import pytest

from component.skills import skill
from tests.kit import anyio_backend, service
from tests.kit.http import Response, post, without_sockets
from tests.simulation.areas.webhooks import Webhooks, github_headers

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

BODY = b'{"label":"a"}'


@skill(destructive=False, open_world=False)
async def hooked(label: str) -> str:
    """Handle an event."""
    return label


@skill(destructive=False, open_world=False)
async def replied(label: str, text: str) -> str:
    """Answer an event."""
    return label + text


async def test_a_service_answers_while_it_runs(tmp_path: Path) -> None:
    settings = {**Webhooks.settings, "agent": {"allowed_domains": ["capulet.example"]}}
    headers = github_headers("d-1", BODY)
    found: list[Response | None] = []

    async with (
        without_sockets(),
        service(tmp_path, settings, skills=[hooked, replied]) as kit,
    ):

        async def deliver() -> None:
            found.append(await post(kit, "/github", headers, BODY))

        await deliver()
        await deliver()
        async with anyio.create_task_group() as group:
            group.start_soon(deliver)
            await anyio.lowlevel.checkpoint()
            await kit.kill()
        await deliver()
        await kit.start()
        await deliver()
        assert (await post(kit, "/nothing", headers, BODY)) is not None
    answers = [None if one is None else one.json["status"] for one in found]
    assert answers == ["accepted", "duplicate", None, None, "duplicate"]
