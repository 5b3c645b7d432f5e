import os
import pty
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.etree.ElementTree import fromstring

import pytest

from component.cli.exit_codes import ExitCode
from component.cli.xml_view import layout
from tests.component.cli.embedded import Embedded
from tests.servers.agent_process import PROGRAM, environment
from tests.servers.clients import SlixClient
from tests.servers.talk import condition, execute, from_, output
from tests.servers.watchdog import Watchdog

LIMIT = 60.0
ANY_PORT = ("--port", "0")


def show(*arguments: str, **options: str) -> str:
    """What `demo --once` prints into a pipe."""
    done = subprocess.run(
        [PROGRAM, "demo", "--once", *ANY_PORT, *arguments],
        env={**environment(), **options},
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT,
    )
    assert done.returncode == ExitCode.OK, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


@contextmanager
def staying(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [PROGRAM, "demo", *arguments],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        watchdog = Watchdog(process.pid)
        try:
            yield process
        finally:
            watchdog.kill_group()


def read_up_to(process: subprocess.Popen[str], pattern: str) -> str:
    assert process.stdout is not None
    text = ""
    for line in process.stdout:
        text += line
        if re.search(pattern, line):
            return text
    raise AssertionError(f"it ended before {pattern}: {text}")


SHOWN = (
    # At once.
    "Juliet discovers its skills",
    "<query xmlns='urn:fluux:agent:0#skills'/>",
    "<skill name='echo'",
    "<execute xmlns='urn:fluux:agent:0#execute' skill='echo'>",
    "<output name='output' type='text/plain'>hello, agent</output>",
    "Europe/Paris",
    "<invalid-param xmlns='urn:fluux:agent:0#errors' name='text'/>",
    "<unknown-skill xmlns='urn:fluux:agent:0#errors'/>",
    "/help - what I understand",
    # As a task, with its events.
    "mode='async'",
    "<accepted xmlns='urn:fluux:agent:0#execute'",
    "state='running' revision='1'",
    "part='0'",
    "part='1'",
    "state='completed' revision='5'",
    "<output name='output' type='text/plain'>3 lines</output>",
    "<events xmlns='urn:fluux:agent:0#task'",
    # After a question: denied in words, approved by IQ.
    "state='input-required' revision='0'",
    '<body>May I run empty-folder? folder: "Archive", older_than_days: 30. Please answer yes or no',
    "<body>No, because Romeo still needs it.</body>",
    "<body>Denied. ",
    "<denied xmlns='urn:fluux:agent:0#errors'/>",
    "because Romeo still needs it.</text>",
    "value='approve'>",
    "state='completed' revision='4'",
    # By form.
    "node='skill/trip-cost' action='execute'/>",
    "<x xmlns='jabber:x:data' type='form'>",
    "<value>far</value>",
    "kilometres: expected an integer.",
    "<value>450</value>",
    "<value>about 180 euros</value>",
    # Not at all.
    "Mallory",
    "<service-unavailable xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/>",
)


@pytest.mark.parametrize("backend", ["trio", "asyncio"])
def test_the_show(backend: str) -> None:
    text = show("--backend", backend)
    assert "\x1b" not in text
    at = 0
    for shown in SHOWN:
        at = text.find(shown, at)
        assert at >= 0, shown
    # Every step asks for something and has its answer: an IQ's result or error, or a message.
    for step in re.split(r"\n(?=Juliet |Mallory )", text)[1:]:
        assert step.count("\n  → ") == 1, step
        assert "\n  ← " in step, step
        assert step.count("\n  → <iq ") == step.count("\n  ← <iq "), step
    assert all(len(line) <= 110 for line in text.splitlines())
    assert "Log in with a client of your own" not in text


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    show(TMPDIR=str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_colours_are_for_terminals() -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [PROGRAM, "demo", "--once", *ANY_PORT],
        env={**environment(), "TERM": "xterm"},
        stdout=theirs,
        stderr=theirs,
        close_fds=True,
    ) as process:
        os.close(theirs)
        shown = b""
        try:
            while data := os.read(ours, 65536):
                shown += data
        except OSError:  # how Linux says that the other side of a terminal is closed
            pass
        finally:
            os.close(ours)
        assert process.wait(LIMIT) == ExitCode.OK
    assert b"\x1b[" in shown
    assert b"<unknown-skill" in shown


@pytest.mark.parametrize("backend", ["trio", "asyncio"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_stays_up_for_a_client_of_ones_own(backend: str, number: signal.Signals) -> None:
    with staying("--backend", backend, *ANY_PORT) as process:
        text = read_up_to(process, "Ctrl-C ends it")
        told = dict(
            re.findall(r"^  (account|password|server|trust|write to)\s+(.*)$", text, re.MULTILINE)
        )
        address, port = re.findall(r"^(\S+), port (\d+), STARTTLS$", told["server"])[0]
        ca_file = Path(re.findall(r"^the authority in (\S+), or ", told["trust"])[0])
        domain = told["write to"].partition(",")[0]
        account = told["account"]
        with SlixClient(account, told["password"], address, int(port), ca_file=ca_file) as you:
            assert you.encrypted
            assert output(you.iq(domain, execute("echo", text="me too"), "set")) == "me too"
            you.send_raw(f"<message to='{domain}' type='chat'><body>/skills</body></message>")
            assert "echo - " in you.messages.take(from_(domain, "chat")).findtext("{*}body", "")
            you.send_raw(f"<presence to='{domain}' type='subscribe'/>")
            you.presences.take(from_(domain))
            process.send_signal(number)
            assert process.wait(LIMIT) == ExitCode.OK
        assert process.stdout is not None
        assert process.stdout.read() == "\nGood-bye.\n"
    assert not ca_file.exists()


def test_whoever_it_does_not_name_is_refused() -> None:
    with staying(*ANY_PORT) as process:
        text = read_up_to(process, "Ctrl-C ends it")
        port = int(re.findall(r"port (\d+), STARTTLS", text)[0])
        with SlixClient("mallory@localhost", "demo", "127.0.0.1", port) as mallory:
            reply = mallory.iq("agent.localhost", execute("echo", text="x"), "set")
            assert condition(reply) == "service-unavailable"


def test_a_port_that_is_taken_is_no_reason_to_fail(embedded: Embedded) -> None:
    with staying("--port", str(embedded.port)) as process:
        text = read_up_to(process, "Ctrl-C ends it")
        assert f"port {embedded.port}," not in text


def test_whoever_reads_may_stop_reading() -> None:
    with staying(*ANY_PORT) as process:
        read_up_to(process, "Juliet discovers")
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(LIMIT) == ExitCode.FAILURE


def test_xml_is_laid_out_for_people() -> None:
    xml = (
        "<a xmlns='urn:a' note='&quot;&lt;&apos;'><b/><c xmlns='urn:c' xml:lang='en'>t &amp; u"
        f"<c/></c><b>{'long words ' * 7}</b><b>{'x' * 70}</b></a>"
    )
    assert list(layout(fromstring(xml), 60)) == [
        "<a xmlns='urn:a' note='&quot;&lt;&apos;'>",
        "  <b/>",
        "  <c xmlns='urn:c' xml:lang='en'>",
        "    t &amp; u",
        "    <c/>",
        "  </c>",
        "  <b>long words long words long words long words long words",
        "      long words long words</b>",
        f"  <b>{'x' * 70}</b>",
        "</a>",
    ]
