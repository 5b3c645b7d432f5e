"""The configuration is reloaded while the service runs: each kind of setting has its effect."""

import logging
import socket
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from component.commands import CommandError
from component.config.problems import Problem, SettingsError
from component.features.announcements.feature import ANNOUNCEMENTS
from component.kernel.kernel import Reloaded
from component.memory_directory.layout import SessionKey
from component.models.protocol import ModelRequest
from component.skills import skill
from tests.component.features.installed_skills.world import install
from tests.kit import AGENT, Kit, Peer, Script, anyio_backend, service
from tests.kit.service import make_settings_of
from tests.logs import restored_logs
from tests.servers.talk import execute
from xep.binding import encode
from xep.disco import InfoQuery
from xep.fluux_agent.execute import Accepted
from xep.jid import JID
from xep.pubsub_owner import Affiliations, PubsubOwner
from xep.vcard_temp import VCard

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

JULIET = "juliet@capulet.example/balcony"
ROMEO = "romeo@capulet.example/orchard"
REST = """
[rest.{name}]
description = "Tell the weather."
url = "http://127.0.0.1:1/{{city}}"
parameters.city.type = "string"
annotations.read_only = true
"""
SCHEDULE = """
[[schedule]]
name = "tea"
when = "every hour"
principal = "juliet@capulet.example"
skill = "echo"
params.text = "Time for tea."
"""
WATCH = """
[[watch]]
name = "romeo"
service = "romeo@capulet.example"
node = "presence"
principal = "juliet@capulet.example"
skill = "echo"
params.text = "Romeo has come or gone."
"""


@pytest.fixture(autouse=True)
def _same_log() -> Iterator[None]:
    """The tests after these have the log of those before."""
    with restored_logs():
        yield


async def outcome(peer: Peer, name: str, **params: object) -> str:
    """Run a skill; return its type, or the condition of the error."""
    answer = await peer.iq("set", execute(name, **params))
    return answer.error().condition if answer.type == "error" else "result"


async def offered(kit: Kit, name: str, person: str = JULIET) -> bool:
    """Return whether a person sees a skill, once all sources have answered."""
    await kit.settled()
    return kit.kernel.environment.catalog.view(JID.parse(person).bare).get(name) is not None


async def owners(peer: Peer) -> list[str]:
    """Return the owners of the node of announcements, or the condition of the error."""
    asked = PubsubOwner(affiliations=Affiliations(node=ANNOUNCEMENTS))
    answer = await peer.iq("get", encode(asked), f"assistant@{AGENT}")
    if answer.type == "error":
        return [answer.error().condition]
    found = answer.require(PubsubOwner).affiliations
    assert found is not None
    return [str(one.jid) for one in found.affiliations if one.affiliation == "owner"]


# Who may do what.


@pytest.mark.parametrize("restarted", [False, True])
async def test_the_admins_own_the_announcements_and_former_admins_do_not(
    tmp_path: Path, restarted: bool
) -> None:
    before, after = (
        f'[agent]\nadmins = ["{one}@capulet.example", "nurse@capulet.example"]'
        for one in ("juliet", "romeo")
    )
    async with service(tmp_path, before) as kit:
        juliet, romeo = kit.peer(JULIET), kit.peer(ROMEO)
        assert await owners(juliet) == ["juliet@capulet.example", "nurse@capulet.example"]
        assert await owners(romeo) == ["forbidden"]
        if restarted:
            await kit.stop()
            kit.settings = make_settings_of(tmp_path, after, None)
            await kit.start()
        else:
            await kit.reload(after)
        assert await owners(juliet) == ["forbidden"]
        assert await owners(romeo) == ["nurse@capulet.example", "romeo@capulet.example"]


async def test_a_changed_policy_applies_to_the_next_request(tmp_path: Path) -> None:
    rule = '[[policy.rules]]\nskills = ["echo"]\nallowed_jids = ["romeo@capulet.example"]\n'
    async with service(tmp_path) as kit:
        juliet, romeo = kit.peer(JULIET), kit.peer(ROMEO)
        assert await outcome(juliet, "echo", text="a") == "result"
        assert await kit.reload(rule) == Reloaded(("[policy]",), ())
        assert await outcome(juliet, "echo", text="a") == "item-not-found"
        assert await outcome(romeo, "echo", text="a") == "result"
        await kit.reload()
        assert await outcome(juliet, "echo", text="a") == "result"


async def test_a_person_who_is_not_allowed_any_more_is_refused(tmp_path: Path) -> None:
    async with service(tmp_path) as kit:
        juliet = kit.peer(JULIET)
        assert await outcome(juliet, "echo", text="a") == "result"
        await kit.reload('[agent]\nallowed_jids = ["romeo@capulet.example"]')
        assert await outcome(juliet, "echo", text="a") == "service-unavailable"
        await kit.reload('[agent]\nallowed_domains = ["montague.example"]')
        assert await outcome(juliet, "echo", text="a") == "service-unavailable"
        await kit.reload()
        assert await outcome(juliet, "echo", text="a") == "result"


async def test_a_view_from_before_does_not_decide_by_the_rules_of_after(tmp_path: Path) -> None:
    one = '[[policy.rules]]\nskills = ["echo"]\nallowed_jids = ["romeo@capulet.example"]\n'
    other = '[[policy.rules]]\nskills = ["ping"]\nallowed_jids = ["juliet@capulet.example"]\n'
    async with service(tmp_path, one) as kit:
        before = kit.kernel.environment.catalog.view(JID.parse(JULIET).bare)
        await kit.reload(other)
        assert before.get("echo") is None


async def test_a_confirmation_is_asked_for_when_the_policy_says_so(tmp_path: Path) -> None:
    always = '[policy]\nconfirm = "always"'
    async with service(tmp_path) as kit:
        juliet = kit.peer(JULIET)
        assert (await juliet.iq("set", execute("echo", text="a"))).payload(Accepted) is None
        await kit.reload(always)
        assert (await juliet.iq("set", execute("echo", text="a"))).payload(Accepted) is not None
        assert "May I repeat" in await juliet.hear()
        await kit.reload()
        assert (await juliet.iq("set", execute("echo", text="a"))).payload(Accepted) is None


async def test_admins_come_and_go(tmp_path: Path) -> None:
    async with service(tmp_path) as kit:
        juliet = kit.peer(JULIET)
        assert "Tasks:" not in await juliet.ask("/status")
        await kit.reload('[agent]\nadmins = ["juliet@capulet.example"]')
        juliet.take()
        assert "Tasks:" in await juliet.ask("/status")
        await kit.reload()
        assert "Tasks:" not in await juliet.ask("/status")


async def test_who_is_no_admin_any_more_may_not_delete_the_memories_of_others(
    tmp_path: Path,
) -> None:
    admin = '[agent]\nadmins = ["juliet@capulet.example"]'
    scope = '[[memory.scopes]]\nname = "kitchen"\nmembers = ["nurse@capulet.example"]'
    whose = SessionKey("assistant", JID.parse(JULIET).bare)
    async with service(tmp_path, f"{admin}\n{scope}") as kit:
        sharing = kit.kernel.environment.memories.sharing
        assert sharing.deletable("kitchen", whose) is not None
        await kit.reload(scope)
        assert sharing.deletable("kitchen", whose) is None


# Agents and models.


async def test_the_next_turn_uses_the_new_model_and_one_under_way_its_own(tmp_path: Path) -> None:
    ends = anyio.Event()

    async def slowly(_request: ModelRequest) -> str:
        await ends.wait()
        return "The first."

    model = Script(slowly, "The second.")
    other = '[llm]\nprovider = "vllm"\nmodel = "other"\nbase_url = "http://m"'
    async with service(tmp_path, '[agent]\nnotice = ""', model=model) as kit:
        juliet = kit.peer(JULIET)
        await juliet.say("Hello")
        await kit.settled()
        assert await kit.reload(f'[agent]\nnotice = ""\n{other}') == Reloaded(("[llm]",), ())
        ends.set()
        assert await juliet.hear() == "The first."
        assert await juliet.ask("Again") == "The second."
    assert model.models == ["scripted", "other"]


async def test_a_model_that_stays_is_the_same(tmp_path: Path) -> None:
    async with service(tmp_path, model=Script()) as kit:
        agents = kit.kernel.agents
        assert agents is not None
        before = agents.profiles.model("standard")
        await kit.reload("[budgets.total]\ntokens = 100000")
        assert agents.profiles.model("standard") is before
        await kit.reload(
            '[llm]\nprovider = "vllm"\nmodel = "scripted"\nbase_url = "http://m"\n'
            '[[llm.fallback]]\nprovider = "vllm"\nmodel = "other"\nbase_url = "http://m"'
        )
        after = agents.profiles.model("standard")
        assert after.models[0] is before  # type: ignore[attr-defined]


async def test_answers_may_be_longer_from_the_next_turn_on(tmp_path: Path) -> None:
    model = Script(otherwise="Well.")
    section = '[agent]\nnotice = ""\n[llm]\nprovider = "vllm"\nmodel = "m"\nbase_url = "http://m"\n'
    async with service(tmp_path, section, model=model) as kit:
        juliet = kit.peer(JULIET)
        await juliet.ask("Hello")
        await kit.reload(f"{section}max_tokens_per_request = 77")
        await juliet.ask("Hello")
    assert [request.max_tokens for request in model.requests] == [4096, 77]


async def test_a_budget_stops_the_next_call(tmp_path: Path) -> None:
    model = Script("First.", otherwise="Later.")
    quiet = '[agent]\nnotice = ""\n'
    async with service(tmp_path, quiet, model=model) as kit:
        juliet = kit.peer(JULIET)
        assert await juliet.ask("Hello") == "First."
        await kit.reload(f"{quiet}[budgets.per_principal]\ntokens = 10")
        assert "budget" in await juliet.ask("Again")
        await kit.reload(quiet)
        assert await juliet.ask("And again") == "Later."


async def test_people_may_make_personas_when_the_settings_allow_it(tmp_path: Path) -> None:
    quiet = '[agent]\nnotice = ""\n'
    async with service(tmp_path, quiet, model=Script()) as kit:
        juliet = kit.peer(JULIET)
        refused = "the operator has not allowed it"
        assert refused in await juliet.ask("/persona create buddy")
        await kit.reload(f"{quiet}[personas]\nallow_user_personas = true")
        assert refused not in await juliet.ask("/persona create buddy")


async def test_the_texts_of_an_agent_change(tmp_path: Path) -> None:
    model = Script(otherwise="Well.")
    agents = '[agent]\nnotice = ""\n[[agents]]\nname = "assistant"\ninstructions = "{}"\n'
    async with service(tmp_path, agents.format("Be brief."), model=model) as kit:
        juliet = kit.peer(JULIET)
        await juliet.ask("Hello")
        assert "Be brief." in str(model.requests[-1])
        changed = await kit.reload(agents.format("Be verbose."))
        assert changed == Reloaded(("[agents]",), ())
        await juliet.ask("Hello")
        assert "Be verbose." in str(model.requests[-1])


async def test_clients_see_another_name(tmp_path: Path) -> None:
    async with service(tmp_path) as kit:
        juliet = kit.peer(JULIET)
        await juliet.send(f"<presence to='{AGENT}' type='subscribe'/>")
        await kit.settled()
        juliet.take()
        await kit.reload('[agent]\nname = "Concierge"')
        card = (await juliet.iq("get", "<vCard xmlns='vcard-temp'/>")).require(VCard)
        assert card.full_name == "Concierge"
        query = "<query xmlns='http://jabber.org/protocol/disco#info'/>"
        (identity, *_) = (await juliet.iq("get", query)).require(InfoQuery).identities
        assert identity.name == "Concierge"
        presence = await juliet.receive(lambda stanza: stanza.kind == "presence")
        assert presence.type == "available", "contacts learn the new capabilities"
        assert "I am Concierge" in await juliet.ask("/help", "Concierge")


# Skills.


async def test_skills_of_a_rest_api_come_change_and_go(tmp_path: Path) -> None:
    async with service(tmp_path) as kit:
        assert not await offered(kit, "rome")
        assert await kit.reload(REST.format(name="rome")) == Reloaded(("[rest]",), ())
        assert await offered(kit, "rome")
        await kit.reload(REST.format(name="verona"))
        assert (await offered(kit, "rome"), await offered(kit, "verona")) == (False, True)
        await kit.reload()
        assert not await offered(kit, "verona")


async def test_a_builtin_skill_is_turned_on_and_off(tmp_path: Path) -> None:
    async with service(tmp_path) as kit:
        await kit.reload("[files]\n")
        assert await offered(kit, "file_list")
        await kit.reload()
        assert not await offered(kit, "file_list")


async def test_a_directory_of_skills_is_added_and_removed(tmp_path: Path) -> None:
    install(tmp_path / "skills")
    section = f'[skills]\ndirectories = ["{tmp_path}/skills"]\nauto_approve = "trusted"\n'
    async with service(tmp_path) as kit:
        await kit.reload(section)
        assert await offered(kit, "greet")
        await kit.reload(section + REST.format(name="rome"))
        assert await offered(kit, "greet")
        await kit.reload()
        assert not await offered(kit, "greet")


async def test_a_call_under_way_goes_on_when_its_skill_is_gone(tmp_path: Path) -> None:
    ends = anyio.Event()

    @skill(name="slow", read_only=True)
    async def slow() -> str:
        """Take its time."""
        await ends.wait()
        return "done"

    async with service(tmp_path, skills=(slow,)) as kit:
        juliet = kit.peer(JULIET)
        await juliet.send(f"<iq to='{AGENT}' type='set' id='1'>{execute('slow')}</iq>")
        await kit.settled()
        await kit.reload('[[policy.rules]]\nskills = ["*"]\nallowed_jids = []')
        ends.set()
        answer = await juliet.receive(lambda stanza: stanza.id == "1")
        assert answer.type == "result"


# Work that starts by itself.


async def test_a_schedule_that_is_added_fires_and_one_that_is_removed_does_not(
    tmp_path: Path,
) -> None:
    async with service(tmp_path) as kit:
        juliet = kit.peer(JULIET)
        assert await kit.reload(SCHEDULE) == Reloaded(("[schedule]",), ())
        await kit.jump(3700)
        assert "Time for tea." in await juliet.hear("tea", within_s=3600)
        await kit.reload()
        juliet.take()
        await kit.jump(4 * 3600)
        assert not juliet.take()


async def test_a_watch_that_is_added_starts_work_and_one_that_is_removed_does_not(
    tmp_path: Path,
) -> None:
    async with service(tmp_path) as kit:
        juliet, romeo = kit.peer(JULIET), kit.peer(ROMEO)
        await kit.reload(WATCH)
        assert (await romeo.receive(lambda each: each.kind == "presence")).type == "subscribe"
        await romeo.send(f"<presence to='assistant@{AGENT}' type='subscribed'/>")
        await romeo.send(f"<presence to='assistant@{AGENT}'/>")
        await kit.advance(1)
        await romeo.send(f"<presence to='assistant@{AGENT}' type='unavailable'/>")
        assert "Romeo has come or gone." in await juliet.hear("Romeo", within_s=600)
        await kit.reload()
        juliet.take()
        await romeo.send(f"<presence to='assistant@{AGENT}'/>")
        await kit.advance(600)
        assert not [each for each in juliet.take() if "Romeo" in (each.text_of("body") or "")]


async def test_http_requests_are_listened_for_and_no_more(tmp_path: Path) -> None:
    with socket.socket() as held:
        # Nobody else gets the port meanwhile; who reuses addresses may listen on it.
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        address = held.getsockname()
        async with service(tmp_path) as kit:
            await kit.reload(f"[http]\nport = {address[1]}")
            with socket.create_connection(address, timeout=10):
                pass
            await kit.reload()
            with pytest.raises(OSError, match="refused"):
                socket.create_connection(address, timeout=10)


# The service itself.


async def test_the_level_of_the_log_changes(tmp_path: Path) -> None:
    async with service(tmp_path) as kit:
        await kit.reload('[log]\nlevel = "error"')
        assert logging.getLogger().level == logging.ERROR
        await kit.reload('[log]\nlevel = "debug"')
        assert logging.getLogger().level == logging.DEBUG


async def test_what_needs_a_restart_is_named_and_stays(tmp_path: Path) -> None:
    async with service(tmp_path) as kit:
        changed = await kit.reload(
            '[server]\nhost = "elsewhere.example"\n[tasks]\nper_principal = 7\n'
            '[agent]\nadmins = ["juliet@capulet.example"]'
        )
        assert changed == Reloaded(("[agent]",), ("[server]", "[tasks]"))
        assert changed.sentences() == [
            "[agent] has changed: the service uses it now.",
            "[server] has changed: restart to use it.",
            "[tasks] has changed: restart to use it.",
        ]
        assert kit.service.settings.server.host == "localhost"
        # It is named until then.
        again = await kit.reload(
            '[server]\nhost = "elsewhere.example"\n[agent]\nadmins = ["juliet@capulet.example"]'
        )
        assert again == Reloaded((), ("[server]",))
        assert (await kit.reload('[agent]\nadmins = ["juliet@capulet.example"]')).sentences() == [
            "Nothing has changed."
        ]


async def test_a_model_that_is_added_needs_a_restart(tmp_path: Path) -> None:
    model = '[llm]\nprovider = "vllm"\nmodel = "m"\nbase_url = "http://m"\n'
    async with service(tmp_path) as kit:
        assert await kit.reload(model) == Reloaded((), ("[llm]",))
        with pytest.raises(CommandError, match=r"\[agents\] has changed, which needs a restart"):
            await kit.reload('[[agents]]\nname = "clerk"\n' + SCHEDULE + 'agent = "clerk"\n')


async def test_settings_with_a_mistake_change_nothing(tmp_path: Path) -> None:
    def wrong() -> None:
        raise SettingsError([Problem("agent.toml", "agent.name", "must not be empty", 3)])

    async with service(tmp_path) as kit:
        juliet = kit.peer(JULIET)
        before = kit.service.settings, list(kit.service._subsystems.opened)  # type: ignore[union-attr]
        kit.service.read = wrong  # type: ignore[assignment]
        with pytest.raises(CommandError, match=r"line 3: agent\.name must not be empty"):
            await kit.service.reload()
        for section, why in (
            ('[agent]\nadmins = ["*"]', "admins"),
            ('[agent]\navatar = "nosuch.png"', "agent.avatar"),
            (
                REST.format(name="rome") + '[[schedule]]\nname = "x"\nwhen = "never ever"\n'
                'principal = "a@b.example"\nskill = "echo"',
                "schedule",
            ),
            ("[[policy.rules]]\nskills = ['echo']\nallowed_jids = ['a@b@c']", "a@b@c"),
        ):
            with pytest.raises(CommandError, match=why):
                await kit.reload(section)
        after = kit.service.settings, list(kit.service._subsystems.opened)  # type: ignore[union-attr]
        assert after == before
        assert not await offered(kit, "rome")
        assert await outcome(juliet, "echo", text="a") == "result"


async def test_a_feature_whose_settings_are_the_same_is_not_touched(tmp_path: Path) -> None:
    async with service(tmp_path, SCHEDULE) as kit:
        subsystems = kit.service._subsystems
        assert subsystems is not None
        before = dict(subsystems.features)
        await kit.reload(SCHEDULE + REST.format(name="rome"))
        changed = {name for name, each in subsystems.features.items() if before.get(name) != each}
        assert changed == {"apis"}


async def test_of_several_requests_at_once_the_last_state_is_used(tmp_path: Path) -> None:
    async with service(tmp_path) as kit:
        async with anyio.create_task_group() as group:
            for name in ("rome", "verona", "mantua"):
                group.start_soon(kit.reload, REST.format(name=name))
                kit.service.reload_soon()
                # Tasks that are started at the same time begin in any order.
                await anyio.lowlevel.checkpoint()
        assert await offered(kit, "mantua")
        assert not await offered(kit, "rome")
        assert not await offered(kit, "verona")


async def test_the_audit_log_has_each_reload(tmp_path: Path) -> None:
    async with service(tmp_path) as kit:
        await kit.reload("[policy]\nconfirm = 'always'")
        (line,) = [line for line in await kit.audited() if line.outcome == "reloaded"]
        assert line.detail == "[policy]"
