"""The tutorial: each command runs, and the skill answers a client."""

import re
import subprocess
import time
from pathlib import Path

import pytest

from component.app.features import load
from tests.component.cli.test_demo import ANY_PORT, LIMIT, read_up_to, staying
from tests.docs.conftest import Commands
from tests.servers.clients import SlixClient
from tests.servers.guides import DOCS, block
from tests.servers.talk import condition, execute, output

GUIDE = DOCS / "tutorials" / "first-skill.md"
COMMANDS = re.findall(r"^```sh\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)


def test_from_nothing_to_a_skill_that_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commands: Commands
) -> None:
    _install, new, describe, test, call, demo, _approve = COMMANDS
    commands(new)
    skill = tmp_path / "tip"
    (skill / "main.py").write_text(block(GUIDE, "main.py"))
    subprocess.run(describe, shell=True, cwd=tmp_path, check=True)
    assert "Says what each person pays" in (skill / "skill.toml").read_text()
    (skill / "tests" / "cases.toml").write_text(block(GUIDE, "cases.toml"))
    assert commands(test) == block(GUIDE, "tested")
    assert commands(call) == block(GUIDE, "called")
    monkeypatch.chdir(tmp_path)
    arguments = demo.split()[2:]
    with staying(*ANY_PORT, *arguments, limits__inline_s=20) as process:
        text = read_up_to(process, "Press Ctrl-C to exit")
        assert "your skills are offered: tip" in text
        port = int(re.findall(r"port (\d+), STARTTLS", text)[0])
        with SlixClient("you@localhost", "demo", "127.0.0.1", port) as you:
            agent = "agent.localhost"
            reply = you.iq(agent, execute("tip", bill="90", people="3"), "set")
            assert output(reply) == "33.00 euros each"
            body = block(GUIDE, "said").strip()
            you.send_raw(f"<message to='{agent}' type='chat'><body>{body}</body></message>")
            answer = block(GUIDE, "answered").strip()
            you.messages.take(lambda one: one.findtext("{*}body") == answer)
            # A change is offered at once.
            (skill / "main.py").write_text(
                block(GUIDE, "main.py").replace("euros each", "euros for each")
            )
            deadline = time.monotonic() + LIMIT
            while output(reply) != "33.00 euros for each":
                assert time.monotonic() < deadline, "the change is not offered"
                reply = you.iq(agent, execute("tip", bill="90", people="3"), "set")
            assert condition(you.iq(agent, execute("tip", bill="-1"), "set")) == "bad-request"


def test_the_configuration_of_the_tutorial_is_read(tmp_path: Path) -> None:
    (toml,) = re.findall(
        r"^```toml\n(\[skills\].*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL
    )
    path = tmp_path / "agent.toml"
    path.write_text(
        f'[server]\ncomponent_domain = "agent.example.com"\ncomponent_secret = "x"\n{toml}'
    )
    assert load(path, {}).skills.directories == (tmp_path / "skills",)
