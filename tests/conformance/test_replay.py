"""What a run has saved is sent again, with what the target chooses put in anew."""

from pathlib import Path

import pytest

from conformance.replay import Replay, read_script
from conformance.report.machine import as_script
from tests.conformance.by_server import attached, judged
from tests.conformance.small_delegating import DelegatingAgent
from tests.conformance.small_further import FurtherAgent
from tests.conformance.test_cli import kit

WORDS = ("execute.says-no", "confirm.approve", "input.content")
BY_CLIENT = ("--self-test",)
BY_ACCEPTOR = ("--self-test", "--acceptor", "127.0.0.1:0")


@pytest.mark.servers
@pytest.mark.parametrize(
    ("recorded", "sent"),
    [
        (BY_CLIENT, BY_ACCEPTOR),
        pytest.param(BY_ACCEPTOR, BY_ACCEPTOR, marks=pytest.mark.thorough),
        pytest.param(BY_CLIENT, BY_CLIENT, marks=pytest.mark.thorough),
    ],
)
def test_a_script_is_sent_again_and_only_what_differs_is_marked(
    tmp_path: Path, recorded: tuple[str, ...], sent: tuple[str, ...]
) -> None:
    script = tmp_path / "script.txt"
    result = kit(*recorded, *WORDS, "--script", str(script))
    assert result.exit_code == 0, result.output
    assert ("through slixmpp" in result.output) == (recorded == BY_CLIENT)
    # The demo offers more than the agent that the acceptor starts: what is asked first differs.
    script.write_text("# " + script.read_text().split("\n\n# ", 1)[1])

    # One answer is expected to be another: it is said which.
    text = script.read_text()
    assert text.count("is-error='true'") == 1
    first, end = text.index("# execute.says-no"), text.index("# confirm.approve")
    wrong = text[first:end].replace("<iq type='result'", "<iq type='error'")
    script.write_text(text[:first] + wrong + text[end:])
    result = kit("replay", str(script), *sent)
    assert result.exit_code == 1
    different, same = result.output.split("# confirm.approve")
    assert "≠ it was error: result/output/usage, and is result: result/output/usage" in different
    assert "# input.content" in same
    assert "≠" not in same


def test_stanzas_are_read_in_their_order() -> None:
    text = "# a.b: Title\n# passed\n\n>>> 0.100 s\n<iq to='x@y'>\n  <q/>\n</iq>\n"
    text += "\n<<< 0.200 s\n<iq/>\n"
    (scene,) = read_script(text)
    assert [(one.way, one.at, one.xml) for one in scene.entries] == [
        ("out", 0.1, "<iq to='x@y'><q/></iq>"),
        ("in", 0.2, "<iq/>"),
    ]
    assert scene.name == "a.b"
    assert scene.target == "x@y"


@pytest.mark.parametrize("text", ["", "nothing of it", "# a.b: Title\n\n<<< 0.1 s\n<iq/>\n"])
def test_what_is_no_script_is_said(text: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no script of the kit"):
        read_script(text)
    path = tmp_path / "no-script"
    path.write_text(text)
    result = kit("replay", str(path), "--self-test")
    assert result.exit_code == 2
    assert "no script of the kit" in result.output


@pytest.mark.servers
@pytest.mark.thorough
def test_another_way_sends_it_too_and_says_what_nobody_there_can_play(tmp_path: Path) -> None:
    script = tmp_path / "script.txt"
    result = kit(*BY_ACCEPTOR, "confirm.unavailable", "task.unknown-same", "--script", str(script))
    assert result.exit_code == 0, result.output
    # The demo offers more than the agent that the acceptor starts: what is asked first differs.
    script.write_text("# " + script.read_text().split("\n\n# ", 1)[1])
    result = kit("replay", str(script), *BY_ACCEPTOR)
    assert result.exit_code == 0, result.output
    assert "2 checks sent again, 0 differences" in result.output
    result = kit("replay", str(script), *BY_CLIENT)
    assert result.exit_code == 1
    (line,) = [line for line in result.output.splitlines() if line.startswith("≠")]
    assert line.startswith("≠ it is left out: it takes an agent")


@pytest.mark.anyio
async def test_a_script_is_sent_by_a_component_with_the_agent_that_it_plays() -> None:
    words = ["delegation.failure", "delegation.confirm-up", "delegation.deadline-down"]
    words += ["replay.conflict", "memory.expires"]
    async with attached(DelegatingAgent()) as way:
        found = await judged(way, words)
        assert not [one.findings for one in found.results if one.findings]
        scenes = read_script(as_script(found))
        assert {one.name for one in scenes} == {"target.about", *words}
        lines = await Replay(way(), timeout=3).run(scenes)
    assert not [line for line in lines if line.startswith("≠")], "\n".join(lines)
    assert any(line.startswith("<<<") and "<decision " in line for line in lines)


@pytest.mark.anyio
async def test_what_has_become_worse_is_a_difference() -> None:
    async with attached(FurtherAgent()) as way:
        scenes = read_script(as_script(await judged(way, ["delegation.unannotated"])))
    async with attached(FurtherAgent("failures as they came")) as way:
        lines = await Replay(way(), timeout=1).run(scenes)
    (line,) = [line for line in lines if line.startswith("≠ it was error: error/")]
    assert line.endswith("/remote-failure, and is error: error/forbidden/forbidden")
