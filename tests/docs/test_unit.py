"""The unit of systemd is valid, and what it and the guide promise agrees with the program."""

import re
import shutil
import subprocess
from collections.abc import Sequence
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Final

import pytest

from component.app.features import FEATURES, settings_model
from component.cli.frame import ExitCode
from component.config import Server
from component.features.builtins.feature import BuiltinFeature
from component.features.feature import Feature
from component.kernel.kernel import RELOADED

ROOT: Final = Path(__file__).parents[2]
UNIT: Final = ROOT / "packaging" / "xmpp-agent.service"
PROGRAM: Final = "/usr/bin/xmpp-agent"
BUILT_IN: Final = BuiltinFeature.reloads


def values(key: str) -> list[str]:
    return re.findall(rf"^{key}=(.*)$", UNIT.read_text(), re.MULTILINE)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("words", [["verify"], ["security", "--offline=true", "--threshold=26"]])
def test_systemd_accepts_the_unit(tmp_path: Path, words: list[str]) -> None:
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace(PROGRAM, "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", *words, str(unit)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout


def test_the_unit_agrees_with_the_program() -> None:
    assert values("Type") == ["notify"]
    assert values("RestartPreventExitStatus") == [str(int(ExitCode.CONFIG))]
    drain_s = Server.model_fields["drain_s"].default
    assert int(values("TimeoutStopSec")[0]) > drain_s + 10
    assert not values("LogsDirectory")
    (start,), (reload,) = values("ExecStart"), values("ExecReload")
    assert start == f"{PROGRAM} run --config /etc/xmpp-agent/agent.toml"
    assert reload == start.replace(" run ", " reload ")


def test_the_guide_says_what_a_reload_applies() -> None:
    """Sections of which a part is reloaded may be in both columns."""
    text = (ROOT / "docs" / "how-to" / "service.md").read_text()
    rows = text.partition("| used at once |")[2].partition("\n\n")[0].splitlines()[2:]
    at_once, with_restart = ([row.split("|")[column] for row in rows] for column in (1, 2))
    reloaded = {*RELOADED, *chain.from_iterable(reloads_of(name) for name in FEATURES)}
    parts = {key.partition(".")[0] for key in reloaded if "." in key} | {"llm", "agents"}
    for section in settings_model().model_fields.keys() - {*BUILT_IN, "worker"}:
        told = rf"\[{section}\]|`{section}`"
        if section in reloaded | parts:
            assert re.search(told, " ".join(at_once)), section
        if section not in reloaded - {"llm", "agents"} and section not in ("policy", "agent"):
            assert re.search(told, " ".join(with_restart)), section
        elif section not in parts:
            assert not re.search(told, " ".join(with_restart)), section


def reloads_of(feature: str) -> Sequence[str]:
    found: type[Feature] = import_module(f"component.features.{feature}.feature").FEATURE
    return found.reloads
