"""The tutorial for a first agent, on Debian's Prosody: its commands, files and answers."""

import re
from pathlib import Path

import pytest

from tests.docs.conftest import Commands
from tests.servers.agent_process import AgentProcess
from tests.servers.chatting import body, heard, say
from tests.servers.fixtures import ServerFactory
from tests.servers.guides import DOCS, SECRET, block
from tests.servers.talk import login

GUIDE = DOCS / "tutorials" / "first-agent.md"
(INIT,) = re.findall(r"^xmpp-agent init .*$", GUIDE.read_text(), re.MULTILINE)
PAGE = "<!-- run by the tests: component -->\n```lua\n{}\n```\n"
AT_A_PORT = re.compile(r'^host = "localhost"\nport = 5347$', re.MULTILINE)


def conversation() -> list[tuple[str, str]]:
    """Who says what in the tutorial, in order."""
    said = re.findall(r"^(\w+): (.*(?:\n .*)*)", block(GUIDE, "conversation"), re.MULTILINE)
    return [(who, re.sub(r"\n +", "\n", text)) for who, text in said]


@pytest.mark.servers
def test_a_first_agent_answers(
    make_prosody: ServerFactory, tmp_path: Path, commands: Commands
) -> None:
    printed = commands(INIT)
    shown = block(GUIDE, "server").strip()
    written = re.sub(r"^--.*\n", "", printed).strip()
    assert re.sub(r'component_secret = ".*"', 'component_secret = "…"', written) == shown
    page = tmp_path / "page.md"
    page.write_text(PAGE.format(shown.replace("…", SECRET)))
    server = make_prosody(host="example.com", guide=page)
    file = tmp_path / "agent.toml"
    toml, edited = re.subn(
        r"^# \[llm\]\n(?:# .*\n)+", block(GUIDE, "llm"), file.read_text(), flags=re.MULTILINE
    )
    assert edited == 1
    there = f'host = "{server.address}"\nport = {server.component_port}'
    toml, edited = AT_A_PORT.subn(there, toml)
    assert edited == 1
    with AgentProcess(server, tmp_path, toml=toml) as agent, login(server) as juliet:
        agent.connected()
        for who, text in conversation():
            if who == "juliet":
                say(juliet, f"assistant@{agent.domain}", text)
            else:
                pattern = ".*".join(map(re.escape, text.split("…")))
                answer = body(heard(juliet))
                assert re.fullmatch(pattern, answer, re.DOTALL), answer
