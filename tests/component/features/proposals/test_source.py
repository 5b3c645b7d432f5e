"""People and models propose skills; nothing of them runs before an admin approves it."""

from pathlib import Path

import pytest

from component.features.installed_skills.commands import InstalledError
from component.skill_directories.proposals import read_proposal
from component.skills.errors import InvalidParam
from component.skills.operations import ModelFailed
from tests.component.features.proposals.world import (
    ADMIN,
    CODE,
    JULIET,
    MANIFEST,
    REST,
    SPLIT,
    TESTS,
    WEATHER,
    living,
    renamed,
    text_of,
)

pytestmark = pytest.mark.anyio


async def test_a_proposal_is_tested_inert_approved_offered_and_revoked(tmp_path: Path) -> None:
    async with living(tmp_path) as world:
        said = text_of(await world.propose(SPLIT))
        assert said.startswith("tip.split is proposed; tests passed: 2.")
        assert await world.states() == {"tip.split": "waiting"}
        assert world.offered.names() == ()
        (listed,) = await world.installed.list()
        assert listed.reason == f"proposed by {JULIET}; no admin has approved it"
        (told,) = world.told
        assert told.startswith(f"{JULIET} proposes the skill tip.split (python).")
        (event,) = world.events
        assert (event.kind, event.outcome, event.principal) == ("capability", "proposed", JULIET)
        shown = await world.installed.show("tip.split")
        assert shown.source.split("----- ")[1:] == [
            f"skill.toml\n{MANIFEST}",
            f"main.py\n{CODE}",
            f"tests/cases.toml\n{TESTS.rstrip()}",
        ]
        assert event.detail == shown.digest[:16]
        await world.installed.approve("tip.split", ADMIN, digest=shown.digest)
        result = await world.offered.says("tip.split", bill=10, people=4)
        assert result == "2.50 euros each"
        await world.installed.revoke("tip.split", ADMIN)
        assert world.offered.names() == ()


async def test_a_request_is_proposed_and_its_tests_reach_no_server(tmp_path: Path) -> None:
    async with living(tmp_path) as world:
        result = await world.propose(WEATHER)
        assert not result.is_error, result.outputs[0].text
        shown = await world.installed.show("weather")
        assert shown.capabilities == ("connect to https://api.example.com:443",)
        assert "connect to https://api.example.com:443" in world.told[0]
        without = WEATHER["tests"].replace("http = ", "# ")
        why = await world.refused({**WEATHER, "tests": without})
        assert "there is no response to GET https://api.example.com/cities/Verona" in why


async def test_the_model_writes_it_and_corrects_it_with_what_its_tests_say(
    tmp_path: Path,
) -> None:
    wrong = {**SPLIT, "code": CODE.replace("/", "*").replace("people < 1", "persons < 1", 1)}
    wrong = {
        **wrong,
        "code": wrong["code"].replace("    if", "    persons = {3: 3}[people]\n    if"),
    }
    async with living(tmp_path) as world:
        result = await world.propose(
            model=({**SPLIT, "manifest": "[skill"}, wrong, SPLIT), description="Split a\nbill."
        )
        assert text_of(result).startswith("tip.split is proposed")
        first, second, third = world.context.prompts
        assert "Split a\nbill." in first
        assert "skill.toml is not TOML" in second
        assert "expected the text '30.00 euros each', not '270.00 euros each'" in third
        assert "refuses nobody: ErrorInChild: KeyError: 0" in third
        assert "bill * people" in third
        assert [one.outcome for one in world.events] == ["proposed"]
        proposal = read_proposal(world.folder.path("tip.split"))
        assert proposal is not None
        assert (proposal.written_by, proposal.description) == ("model", "Split a bill.")


async def test_the_model_has_so_many_attempts(tmp_path: Path) -> None:
    wrong = {**WEATHER, "tests": WEATHER["tests"].replace("It is 21", "It was 21")}
    async with living(tmp_path, attempts=2) as world:
        result = await world.propose(model=(wrong, wrong, WEATHER))
        assert result.is_error
        assert "2 drafts, and the last was refused. 1 of 1 tests fail" in text_of(result)
        assert world.context.unused == 1
        result = await world.propose(model=(ModelFailed("refused", "No model is set up."),))
        assert text_of(result) == "No model is set up."
        assert world.folder.all() == {}


async def test_who_passes_the_code_needs_no_model(tmp_path: Path) -> None:
    async with living(tmp_path) as world:
        await world.propose(WEATHER)
        assert world.context.prompts == []
        for missing in ("manifest", "tests"):
            with pytest.raises(InvalidParam, match=missing):
                await world.propose({key: WEATHER[key] for key in WEATHER if key != missing})


async def test_texts_of_strangers_are_labelled(tmp_path: Path) -> None:
    async with living(tmp_path) as world:
        result = await world.propose(WEATHER, taints=("person", "web"))
        assert result.taints == ("person", "web")
        assert "its author had read texts of strangers (web)" in world.told[0]
        assert "strangers (web)" in world.events[0].detail
        shown = await world.installed.show("weather")
        assert any("WARNING: the model had read" in one for one in shown.proposed)
        clean = await world.propose(renamed("other"), taints=("person",))
        assert clean.taints == ("person",)
        assert "strangers" not in world.told[1]


async def test_no_name_shadows_another_skill(tmp_path: Path) -> None:
    async with living(tmp_path) as world:
        assert "echo exists: choose another" in await world.refused(renamed("echo"))
        await world.propose(WEATHER)
        assert "Somebody has proposed" in await world.refused(WEATHER, principal="eve@example.com")
        # Who has proposed it may correct it, and an admin is not told twice.
        await world.propose({**WEATHER, "manifest": REST + "# corrected\n"})
        assert len(world.told) == 1
        await world.approve("weather")
        assert "weather exists" in await world.refused(WEATHER)
        await world.installed.revoke("weather", ADMIN)
        manifest = REST.replace("[skill.capabilities]", "[skill.capabilities]\nclock = true")
        await world.propose({**WEATHER, "manifest": manifest})
        shown = await world.installed.show("weather")
        assert (shown.state, shown.added) == ("revoked", ("read the time",))


async def test_what_was_read_is_approved_and_nothing_else(tmp_path: Path) -> None:
    async with living(tmp_path) as world:
        await world.propose(WEATHER)
        before = (await world.installed.show("weather")).digest
        await world.propose({**WEATHER, "manifest": REST + "# something else\n"})
        for digest, trusted, why in (
            ("", False, "approved with the digest"),
            (before, False, "has changed"),
            (before, True, "always confined"),
        ):
            with pytest.raises(InstalledError, match=why):
                await world.installed.approve("weather", ADMIN, digest=digest, trusted=trusted)
        (world.folder.path("weather") / "skill.toml").write_text(REST)
        shown = await world.installed.show("weather")
        assert "WARNING: its files were changed after its tests." in shown.proposed
        assert world.offered.names() == ()


async def test_the_settings_approve_no_proposal(tmp_path: Path) -> None:
    async with living(tmp_path) as world:
        world.installed._auto = "confined"
        await world.propose(WEATHER)
        assert await world.states() == {"weather": "waiting"}


async def test_a_proposal_is_rejected(tmp_path: Path) -> None:
    async with living(tmp_path) as world:
        await world.propose(WEATHER)
        await world.installed.reject("weather", ADMIN)
        assert await world.states() == {}
        assert world.events[-1].outcome == "rejected"
        await world.propose(WEATHER)
        await world.approve("weather")
        with pytest.raises(InstalledError, match="revoke it first"):
            await world.installed.reject("weather", ADMIN)
        with pytest.raises(InstalledError, match="is proposed"):
            await world.installed.reject("echo", ADMIN)


async def test_so_many_proposals_wait(tmp_path: Path) -> None:
    async with living(tmp_path, per_principal=2, total=3) as world:
        await world.propose(renamed("one"))
        await world.propose(renamed("two"))
        assert "Too many proposals wait" in await world.refused(renamed("three"))
        assert "Too many" in text_of(await world.propose(model=(WEATHER,)))
        assert world.context.prompts == [], "the model is not paid in vain"
        await world.propose(renamed("three"), principal="romeo@example.com")
        refused = await world.refused(renamed("four"), principal="nurse@example.com")
        assert "Too many" in refused
        await world.approve("one")
        assert not (await world.propose(renamed("four"))).is_error


async def test_an_interrupted_change_is_completed_or_undone(tmp_path: Path) -> None:
    async with living(tmp_path) as world:
        await world.propose(WEATHER)
        path = world.folder.path("weather")
        path.rename(path.with_name(".old-weather"))
        (path.parent / ".new-abc").mkdir()
    async with living(tmp_path) as world:
        assert await world.states() == {"weather": "waiting"}
        assert sorted(one.name for one in path.parent.iterdir()) == ["weather"]
        assert oct(path.stat().st_mode & 0o077) == oct(0)


async def test_a_skill_that_remembers_and_asks_the_model_is_tested_without_either(
    tmp_path: Path,
) -> None:
    manifest = MANIFEST.replace(
        "[skill.capabilities]",
        '[skill.capabilities]\nllm = { max_tokens = 100 }\nmemory_write = ["skill"]',
    )
    code = '''
from xmpp_agent import Context, skill
import msgspec

class Mood(msgspec.Struct):
    mood: str

@skill(name="tip.split", read_only=True, open_world=False, capabilities=["llm"])
async def mood(text: str, context: Context) -> str:
    """Say the mood."""
    return (await context.llm(text, Mood, max_tokens=50)).mood
'''
    tests = """
[[case]]
name = "says the mood"
params = { text = "Hooray!" }
model = [{ mood = "good" }]
text = "good"
"""
    async with living(tmp_path) as world:
        result = await world.propose({"manifest": manifest, "code": code, "tests": tests})
        assert not result.is_error, result.outputs[0].text
