"""What a run has saved is sent again, with what the target chooses put in anew."""

from pathlib import Path

import pytest

from conformance.replay import read_script
from tests.conformance.test_cli import kit

WORDS = ("execute.says-no", "confirm.approve", "input.order")


def test_a_script_is_sent_again_and_the_same_comes_back(tmp_path: Path) -> None:
    script = tmp_path / "script.txt"
    way = ("--self-test", "--acceptor", "127.0.0.1:0")
    result = kit(*way, *WORDS, "--script", str(script))
    assert result.exit_code == 0, result.output
    result = kit("replay", str(script), *way)
    assert result.exit_code == 0, result.output
    assert "0 differences" in result.output

    # One answer is expected to be another: it is said which.
    text = script.read_text()
    assert text.count("is-error='true'") == 1
    wrong = text.replace("<iq type='result'", "<iq type='error'")
    script.write_text(wrong[wrong.index("# execute.says-no") : wrong.index("# confirm.approve")])
    result = kit("replay", str(script), *way)
    assert result.exit_code == 1
    assert (
        "≠ it was error: result/output/usage, and is result: result/output/usage" in result.output
    )


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
