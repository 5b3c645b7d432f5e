"""The command by which an operator has an agent do something in a person's conversation."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import pytest

from component.agent import rows as turns
from component.agent.requests import OperatorStarter, TurnRequest
from component.budget.protocol import Payer
from component.commands import OPERATOR, Asking, CommandError, CommandResult, read_words
from component.features.agents_admin.commands import TurnSheet
from component.models.protocol import ModelRequest
from component.skills import skill
from tests.kit import Kit, Script, anyio_backend, call, service
from tests.kit.model import Step
from xep.jid import JID

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

BOSS = JID.parse("boss@a.example")
JULIET = JID.parse("juliet@a.example")
SETTINGS = {
    "server": {"component_domain": "agent.example"},
    "agent": {"allowed_domains": ["a.example"], "admins": ["boss@a.example"]},
    "agents": [{"name": name} for name in ("assistant", "reader", "tired", "gone")],
}


@skill
def erase() -> str:
    """Erase everything."""
    return "erased"


async def for_ever(_request: ModelRequest) -> str:
    """Never answer."""
    await anyio.sleep_forever()
    raise AssertionError("unreachable")


@asynccontextmanager
async def desk(directory: Path, *steps: Step, otherwise: Step = for_ever) -> AsyncIterator[Kit]:
    """Run a service whose agents answer with these steps: two at work, one paused, one killed."""
    model = Script(*steps, otherwise=otherwise)
    async with service(directory, SETTINGS, model=model, skills=(erase,)) as kit:
        assert kit.kernel.agents is not None
        await kit.kernel.agents.agents.pause("tired", "operator")
        await kit.kernel.agents.agents.kill("gone", "operator")
        yield kit


async def run(kit: Kit, asking: Asking = OPERATOR, **params: str) -> CommandResult:
    command = kit.kernel.commands.get("tell-agent", asking)
    assert command is not None
    given = {"name": "assistant", "text": "Do it.", "for": "juliet@a.example", **params}
    return await command.run(asking, command.read(given.items()))


async def taken(kit: Kit) -> list[TurnRequest]:
    """Return the requests that agents have taken in and not answered."""
    rows = await kit.kernel.storage.read(partial(turns.of_home, home=kit.kernel.environment.home))
    return [row.request for row in rows]


async def told(kit: Kit) -> list[tuple[str, str, str]]:
    """Return the recorded instructions: by whom, to whom, and the turn."""
    return [
        (event.principal, event.subject, event.trace)
        for event in await kit.audited()
        if event.outcome == "told"
    ]


async def test_the_turn_is_the_persons_and_the_operator_is_named(tmp_path: Path) -> None:
    async with desk(tmp_path) as kit:
        answer = await run(kit)
        await run(kit, kit.kernel.commands.asking(BOSS), name="reader", text=" Read it. ")
        first, second = await taken(kit)
        assert first.principal == first.conversation.peer == JULIET
        assert str(first.conversation.agent) == "assistant@agent.example"
        assert first.starter == OperatorStarter("operator")
        assert second.starter == OperatorStarter("boss@a.example")
        assert (second.agent, second.text) == ("reader", "Read it.")
        assert first.reply_to is not None
        assert (first.reply_to.to, first.reply_to.type) == ("juliet@a.example", "chat")
        assert first.reply_to.from_ == first.conversation.agent
        assert first.id in answer.text
        assert isinstance(answer.value, TurnSheet)
        assert (answer.value.turn, answer.value.outcome) == (first.id, "started")
        assert await told(kit) == [
            ("operator", "juliet@a.example", first.id),
            ("boss@a.example", "juliet@a.example", second.id),
        ]


@pytest.mark.parametrize(
    ("budget", "payer"),
    [
        ("", None),
        ("total", Payer("day")),
        ("agent:reader", Payer("agent", "reader")),
        ("principal:Bob@a.example/phone", Payer("principal", "bob@a.example")),
    ],
)
async def test_tell_agent_passes_on_the_budget_that_is_named(
    tmp_path: Path, budget: str, payer: Payer | None
) -> None:
    async with desk(tmp_path) as kit:
        await run(kit, budget=budget)
        (request,) = await taken(kit)
        assert request.payer == payer


async def test_tell_agent_lists_the_budgets_when_the_named_one_is_unknown(tmp_path: Path) -> None:
    async with desk(tmp_path) as kit:
        for budget in (
            *("agent:nobody", "agent:", "reader"),
            *("principal:bob@b.example", "principal:@", "day"),
        ):
            there = "there are: total, agent:assistant, agent:reader"
            with pytest.raises(CommandError, match=there) as no:
                await run(kit, budget=budget)
            assert no.value.param == "budget"
        assert await taken(kit) == []


async def test_tell_agent_refuses_with_the_reason_and_the_parameter(tmp_path: Path) -> None:
    refused = [
        ({"name": "nobody"}, "no agent called 'nobody'; there are: assistant, reader", "name"),
        ({"name": "tired"}, "tired is paused: resume it first", "name"),
        ({"name": "gone"}, "was shut down", "name"),
        ({"for": "bob@b.example"}, "is not admitted", "for"),
        ({"for": "a.example"}, "is not a person", "for"),
        ({"for": "reader@agent.example"}, "is not a person", "for"),
        ({"for": "@"}, "is not an address", "for"),
        ({"text": "  "}, "The text is empty", "text"),
        ({"text": ""}, "text", "text"),
    ]
    async with desk(tmp_path) as kit:
        for params, reason, param in refused:
            with pytest.raises(CommandError, match=reason) as caught:
                await run(kit, **params)
            assert caught.value.param == param
        assert await taken(kit) == []


async def test_tell_agent_refuses_a_recipient_who_stopped_messages(tmp_path: Path) -> None:
    async with desk(tmp_path) as kit:
        agent = JID.parse("assistant@agent.example")
        await kit.kernel.environment.stopped.stop(agent, JULIET)
        with pytest.raises(CommandError, match="has stopped messages from assistant"):
            await run(kit)


async def test_tell_agent_refuses_while_the_queue_is_full(tmp_path: Path) -> None:
    async with desk(tmp_path) as kit:
        for _ in range(21):  # the first is under way
            await run(kit)
        with pytest.raises(CommandError, match="has 20 requests waiting"):
            await run(kit)
        assert len(await told(kit)) == 21, "nothing more was told"


async def test_tell_agent_refuses_while_no_request_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with desk(tmp_path) as kit:
        pause = kit.kernel.commands.get("pause", OPERATOR)
        assert pause is not None
        await pause.run(OPERATOR, pause.read([]))
        boss = kit.kernel.commands.asking(BOSS)
        for asking in (OPERATOR, boss):
            await run(kit, asking)  # pausing the service does not stop admins
        why = "Requests cannot be recorded in the audit log at the moment; try again later."
        monkeypatch.setattr(kit.kernel.tasks.pause_gate, "_full", lambda: why)
        for asking in (OPERATOR, boss):
            with pytest.raises(CommandError, match="cannot be recorded"):
                await run(kit, asking)


@pytest.mark.parametrize(
    ("step", "outcome", "said"),
    [
        ("Done.", "answered", "assistant has answered juliet@a.example: Done."),
        (call("erase"), "asked", "is waiting for juliet@a.example to answer a question"),
        (for_ever, "running", "It has not ended after 50 s"),
    ],
)
async def test_tell_agent_with_wait_reports_the_outcome(
    tmp_path: Path, step: Step, outcome: str, said: str
) -> None:
    async with desk(tmp_path, step) as kit:
        answer = await run(kit, wait="true")
        assert said in answer.text
        assert isinstance(answer.value, TurnSheet)
        assert answer.value.outcome == outcome


async def test_tell_agent_with_wait_reports_that_the_agent_was_paused_meanwhile(
    tmp_path: Path,
) -> None:
    async def slow(_request: ModelRequest) -> str:
        await anyio.sleep(30)
        return "Done."

    async with desk(tmp_path, slow) as kit, anyio.create_task_group() as group:
        group.start_soon(run, kit)
        await kit.advance(1)

        async def pause() -> None:
            await anyio.sleep(10)
            assert kit.kernel.agents is not None
            await kit.kernel.agents.agents.pause("assistant", "operator")

        group.start_soon(pause)
        answer = await run(kit, wait="true")
        assert "told juliet@a.example: " in answer.text
        assert "paused" in answer.text
        assert isinstance(answer.value, TurnSheet)
        assert answer.value.outcome == "away"


async def test_only_admins_have_the_command_tell_agent_by_slash(tmp_path: Path) -> None:
    async with desk(tmp_path) as kit:
        commands = kit.kernel.commands
        assert commands.get("tell-agent", commands.asking(JULIET)) is None
        command = commands.get("tell-agent", commands.asking(BOSS))
        assert command is not None
        params = read_words(command, 'reader "Read it." juliet@a.example budget=total')
        assert (params.name, params.text, params.person) == (
            *("reader", "Read it.", "juliet@a.example"),
        )
        assert params.budget == "total"
