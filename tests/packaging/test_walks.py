"""Pages are followed to the letter in a Debian that systemd has booted."""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.packaging.booted import Booted, booted, control_group
from tests.packaging.releases import BIN, build, copy_sources, run
from tests.packaging.walk import (
    AGENT,
    AUTHORITY,
    CHECKOUT,
    HOST,
    Page,
    chatting,
    ejabberd,
    install,
    new_machine,
    prosody,
)

pytestmark = [pytest.mark.servers, pytest.mark.thorough]


@pytest.fixture(scope="module")
def debian(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A Debian with the package to install, or the one in the directory WALK_DEBIAN."""
    if given := os.environ.get("WALK_DEBIAN"):
        yield Path(given)
        return
    sources = copy_sources(tmp_path_factory.mktemp("sources"))
    build(sources, "wheel")
    run("bash", "packaging/deb.sh", BIN.parent, cwd=sources, PYTHONPATH=str(sources))
    root = tmp_path_factory.mktemp("debian") / "root"
    new_machine(root, next((sources / "dist").glob("*.deb")))
    yield root
    shutil.rmtree(root)


@pytest.fixture
def machine(debian: Path) -> Iterator[Booted]:
    with control_group(f"xmpp-agent-{os.getpid()}") as group, booted(debian, group) as machine:
        yield machine


CONFIG = "/etc/xmpp-agent/agent.toml"
PROSODY = f"/etc/prosody/conf.d/{AGENT}.cfg.lua"
OWN_MODEL = '[llm]\nprovider = "local"\n'


def served(machine: Booted) -> None:
    """Have the package installed as the guide to the service says, with Prosody."""
    prosody(machine)
    install(machine)
    init = f"xmpp-agent init --force --domain {AGENT} --server prosody"
    machine.write(PROSODY, machine.check(init))
    machine.check("systemctl restart prosody && systemctl enable --now xmpp-agent")


def add(machine: Booted, toml: str) -> None:
    """Add a section to the configuration of the service."""
    machine.check(f"cat >> {CONFIG}", said=f"\n{toml}")


def answers(machine: Booted, conversation: str) -> None:
    """Have the conversation of a page; `…` in it stands for any text."""
    said = re.findall(r"^(\w+): (.*(?:\n .*)*)", conversation, re.MULTILINE)
    with chatting(machine) as juliet:
        juliet.asks("Hello!", "I am not a person")
        juliet.hear()
        for who, text in said:
            if who == "juliet":
                juliet.say(text)
            else:
                pattern = ".*".join(map(re.escape, re.sub(r"\n +", "\n", text).split("…")))
                answer = juliet.hear()
                assert re.fullmatch(pattern, answer, re.DOTALL), answer


def test_a_first_agent(machine: Booted) -> None:
    prosody(machine)
    with Page("tutorials/first-agent.md").followed() as page:
        machine.check(page.commands(), "juliet", CHECKOUT)
        venv = ". ~/xmpp-agent/bin/activate\n"
        here = "/home/juliet/agent"
        machine.check(f"mkdir {here}", "juliet")
        printed = machine.check(venv + page.commands(), "juliet", here)
        assert re.sub('"[^"]{43}"', '"…"', printed.partition("\n")[2]) == page.block("lua")
        machine.write(PROSODY, printed)
        machine.check("systemctl restart prosody")
        toml = machine.read(f"{here}/agent.toml")
        edited, count = re.subn(
            r"^# \[llm\]\n(?:# .*\n)+", page.block("toml"), toml, flags=re.MULTILINE
        )
        assert count == 1
        machine.write(f"{here}/agent.toml", edited, "juliet")
        doctor, start = page.commands().splitlines()
        assert "failed" not in machine.check(venv + doctor, "juliet", here)
        with machine.running(venv + start, "juliet", here, until='"connected"'):
            answers(machine, page.block("text"))


def test_a_first_skill(machine: Booted) -> None:
    with Page("tutorials/first-skill.md").followed() as page:
        machine.check(page.commands(), "juliet", CHECKOUT)
        venv = ". ~/xmpp-agent/bin/activate\n"
        machine.check(venv + page.commands(), "juliet")
        machine.write("tip/main.py", page.block("python"), "juliet")
        machine.check(page.commands(), "juliet")
        machine.write("tip/tests/cases.toml", page.block("toml"), "juliet")
        assert machine.check(venv + page.commands(), "juliet") == page.block("text")
        assert machine.check(venv + page.commands(), "juliet") == page.block("text")
        demo = venv + page.commands()
        with machine.running(demo, "juliet", "", until="Ctrl-C") as shown:
            assert "your skills are offered: tip" in "".join(shown)
        # On the machine of the service, whose admin approves it.
        served(machine)
        directory = page.block("toml")
        toml = machine.read(CONFIG)
        edited, count = re.subn(
            r"^# \[skills\]\n# directories.*\n", directory, toml, flags=re.MULTILINE
        )
        assert count == 1
        machine.write(CONFIG, edited)
        machine.check("mkdir /etc/xmpp-agent/skills; cp -r ~juliet/tip /etc/xmpp-agent/skills")
        machine.check("chmod -R a+rX skills", directory="/etc/xmpp-agent")
        machine.check("xmpp-agent reload")
        listing, showing, approving = page.commands().splitlines()
        assert re.search(r"tip +.*waiting", machine.check(listing))
        shown_digest = machine.check(showing)
        digest = re.findall(r"[0-9a-f]{64}", shown_digest)[0]
        # Without a terminal, the digest of what was shown has to be named.
        machine.check(f"{approving} --yes --digest {digest}")
        with chatting(machine) as juliet:
            juliet.asks("/run tip bill=90 people=3", "33.00 euros each")


def test_run_as_a_service(machine: Booted) -> None:
    prosody(machine)
    with Page("how-to/service.md").followed() as page:
        installing, initialising, checking, starting = page.commands().splitlines()
        assert "not starting it" not in machine.check(f"yes | {installing} 2>&1")
        machine.write(PROSODY, machine.check(initialising))
        machine.check("systemctl restart prosody")
        assert "failed" not in machine.check(checking)
        machine.check(starting)
        page.pass_over("there is no Docker")
    # systemd hears that it is ready, and why it is not reloaded.
    assert "connected as agent.example.com" in machine.check("systemctl status xmpp-agent")
    toml = machine.read(CONFIG)
    machine.write(CONFIG, toml.replace('"Assistant"', '"Butler"'))
    machine.check("systemctl reload xmpp-agent")
    machine.write(CONFIG, toml.replace("name =", "nme ="))
    assert machine.run("systemctl reload xmpp-agent").returncode == 1
    assert "did you mean agent.name?" in machine.check("journalctl -u xmpp-agent -p warning")
    machine.check("systemctl is-active xmpp-agent")
    with chatting(machine) as juliet:
        juliet.asks("/help", "/skills")
    # With a mistake in the file it does not start, and systemd does not try again.
    assert machine.run("systemctl restart xmpp-agent").returncode == 1
    state = "systemctl show -p Result,ExecMainStatus,NRestarts xmpp-agent"
    assert "ExecMainStatus=78" in machine.check(state)
    assert "did you mean" in machine.check("journalctl -u xmpp-agent -p err | tail -n 2")
    assert machine.run("systemctl is-active xmpp-agent").stdout == "failed\n"
    # A process that is killed is started again, and so is one that does not react.
    machine.write(CONFIG, toml)
    machine.check("systemctl start xmpp-agent && systemctl kill --signal KILL xmpp-agent")
    restarted(machine, 1)
    machine.check("mkdir -p /run/systemd/system/xmpp-agent.service.d")
    drop_in = "/run/systemd/system/xmpp-agent.service.d/quick.conf"
    machine.write(drop_in, "[Service]\nWatchdogSec=5\n")
    machine.check("systemctl daemon-reload && systemctl restart xmpp-agent")
    machine.check("kill -STOP $(systemctl show -p MainPID --value xmpp-agent)")
    restarted(machine, 1)
    assert "Watchdog timeout" in machine.check("journalctl -u xmpp-agent")


def restarted(machine: Booted, times: int) -> None:
    """Wait until systemd has restarted the service, and it is ready."""
    value = "systemctl show -p NRestarts --value xmpp-agent"
    machine.check(f"until [ $({value}) = {times} ]; do sleep 0.2; done; systemctl start xmpp-agent")


def test_prosody(machine: Booted) -> None:
    prosody(machine)
    install(machine)
    with Page("how-to/prosody.md").followed() as page:
        machine.write(PROSODY, page.block("lua"))
        machine.check(page.commands())
        machine.check("mkdir agent", "juliet")
        machine.write("agent/agent.toml", page.block("toml"), "juliet")
        by_hand(machine, page.commands())


def test_ejabberd(machine: Booted) -> None:
    ejabberd(machine)
    install(machine)
    with Page("how-to/ejabberd.md").followed() as page:
        file = "/etc/ejabberd/ejabberd.yml"
        listener = page.block("yaml")
        machine.write(file, machine.read(file).replace("listen:\n", f"listen:\n{listener}", 1))
        machine.check(page.commands())
        machine.check("mkdir agent", "juliet")
        machine.write("agent/agent.toml", page.block("toml"), "juliet")
        by_hand(machine, page.commands())


def by_hand(machine: Booted, commands: str) -> None:
    """Check and start an agent of an ordinary user, with the commands of a guide."""
    export, doctor, start = commands.splitlines()
    assert "failed" not in machine.check(f"{export}\n{doctor}", "juliet", "agent")
    running = machine.running(f"{export}\n{start}", "juliet", "agent", until='"connected"')
    with running, chatting(machine) as juliet:
        juliet.asks("/help", "/skills", to=AGENT)


@pytest.mark.parametrize("server", ["prosody", "ejabberd"])
def test_client_mode(server: str, machine: Booted) -> None:
    (prosody if server == "prosody" else ejabberd)(machine)
    install(machine)
    with Page("how-to/client-mode.md").followed() as page:
        (register,) = [line for line in page.commands().splitlines() if server in line]
        machine.check(register.replace("register helper", "register helper"))
        machine.check("mkdir agent", "juliet")
        toml = page.block("toml").replace("[server]", f'[server]\ntls_ca = "{AUTHORITY}"')
        machine.write("agent/agent.toml", toml, "juliet")
        machine.write("agent/agent.env", page.block("sh"), "juliet")
        machine.check("chmod 600 agent/agent.env", "juliet")
        page.pass_over("the package has the extra")
        doctor, start = page.commands().splitlines()
        assert "failed" not in machine.check(doctor, "juliet", "agent")
        running = machine.running(start, "juliet", "agent", until='"connected"')
        with running, chatting(machine) as juliet:
            juliet.asks("/help", "/skills", to=f"helper@{HOST}")


def test_operating(machine: Booted) -> None:
    served(machine)
    with Page("how-to/operating.md").followed() as page:
        postgres = page.block("toml")
        url = "postgresql://agent:moon@localhost/agent"
        machine.check("systemctl start postgresql")
        create_user, create_database = page.commands().splitlines()
        machine.check(create_user, "postgres", said="moon\nmoon\n")
        machine.check(create_database, "postgres")
        toml = machine.read(CONFIG)
        machine.write(CONFIG, toml.replace("[storage]\n", postgres))
        machine.check("cat >> /etc/xmpp-agent/agent.env", said=f"AGENT_DATABASE={url}\n")
        machine.check("systemctl restart xmpp-agent")
        with chatting(machine) as juliet:
            juliet.asks("/schedule add in 1 day: run time", "Added")
        for line in page.commands().splitlines():
            command = line.partition("#")[0]
            if " ID" in command:
                done = machine.run(command.replace("ID", "0" * 8))
                assert "no such task" in done.stderr, (command, done)
            else:
                machine.check(command)
        assert "PostgreSQL" in machine.check("xmpp-agent status")


def test_backups(machine: Booted) -> None:
    served(machine)
    with chatting(machine) as juliet:
        juliet.asks("/memory set tea Green, two leaves.", "tea")
    with Page("how-to/backup.md").followed() as page:
        rehearse, upgrade = page.commands().splitlines()
        assert "nothing to do" in machine.check(rehearse)
        machine.check(f"systemctl stop xmpp-agent\n{upgrade}\nsystemctl start xmpp-agent")
        rollback = f"systemctl stop xmpp-agent\n{page.commands()}"
        assert "no upgrade to undo" in machine.run(rollback).stderr
        machine.check("systemctl start xmpp-agent")
        data, here = "/var/lib/xmpp-agent", "/srv/backups"
        machine.check(f"mkdir {here}; chown xmpp-agent {here}")

        def as_the_service(commands: str) -> str:
            shell = f"sudo -u xmpp-agent env XMPP_AGENT_CONFIG={CONFIG} HOME={here} sh -e"
            script = commands.replace("data=data", f"data={data}")
            return machine.check(shell, directory=here, said=script)

        as_the_service(page.commands())
        machine.check(f"systemctl stop xmpp-agent; rm -r {data}/*")
        restored = as_the_service(f"there=$(ls -d backup/*)\n{page.commands()}")
        assert "complete and unchanged" in restored
        machine.check("systemctl start xmpp-agent")
        with chatting(machine) as juliet:
            juliet.asks("/memory", "Green, two leaves.")
        as_the_service("git config --global user.name A; git config --global user.email a@b")
        as_the_service(page.commands())


def test_schedules(machine: Booted) -> None:
    served(machine)
    with Page("how-to/schedules.md").followed() as page:
        listing, adding, pausing, removing = page.commands().splitlines()
        assert machine.check(listing) == "[]\n"
        said = machine.run(adding).stderr
        assert "language model" in said, said
        named = adding.replace('--goal "Sum up the week."', "--skill time --name weekly-report")
        machine.check(named)
        machine.check(pausing)
        found = re.findall(r'"id": "(\w+)"', machine.check(listing))
        machine.check(removing.replace("4f1c09aa", found[0]))
        assert machine.check(listing) == "[]\n"


def test_webhooks(machine: Booted) -> None:
    served(machine)
    with Page("how-to/webhooks.md").followed() as page:
        page.pass_over("the package has the extra")
        here = "/etc/xmpp-agent"
        machine.check(page.commands(), directory=here)
        add(machine, page.block("toml"))
        page.block("toml")
        machine.check(page.commands(), directory=here)
        add(machine, page.block("toml"))
        machine.check("xmpp-agent doctor && systemctl reload xmpp-agent")
        machine.write("/tmp/sender.py", page.block("python"))
        sent = machine.check(
            f". {here}/agent.env; export DEPLOY_HOOK_SECRET; python3 /tmp/sender.py"
        )
        assert re.match(r'202 \{"status":"accepted","id":"msg_.*","task":".*"\}', sent), sent


def test_mcp_servers(machine: Booted) -> None:
    served(machine)
    with Page("how-to/mcp.md").followed() as page:
        page.pass_over("the package has the extra")
        machine.check(page.commands())
        add(machine, page.block("toml"))
        assert re.search(
            r"^ok +mcp time .*has 2 tools", machine.check("xmpp-agent doctor"), re.MULTILINE
        )
        available = "journalctl -u xmpp-agent | grep 'an MCP server is available'"
        machine.check(f"systemctl restart xmpp-agent; until {available}; do sleep 0.2; done")
        with chatting(machine) as juliet:
            juliet.asks("/run time.get_current_time timezone=Europe/Paris", "May I")
        listing, showing, approving = page.commands().splitlines()
        assert "time.convert_time" in machine.check(listing)
        machine.check(showing)
        assert approving
