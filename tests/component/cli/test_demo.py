import importlib.util
import re
import signal
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from xml.etree.ElementTree import fromstring

import pytest
from click.testing import CliRunner

from component.cli import demo, demo_scenes
from component.cli.demo_screen import xml_lines
from component.cli.frame import ExitCode
from component.cli.group import group
from component.models import local
from tests.component.cli.conftest import RunCommand
from tests.component.cli.embedded import Embedded
from tests.component.cli.pseudoterminal import INTERRUPT, PseudoTerminal
from tests.component.cli.shorter_demo import skip_scenes
from tests.component.models.endpoint import Calls, Endpoint, Request, Stall, Text, in_thread
from tests.profiles import THOROUGH
from tests.servers.agent_process import PROGRAM, environment
from tests.servers.clients import SlixClient
from tests.servers.talk import condition, execute, from_, output
from tests.servers.watchdog import Watchdog

LIMIT = 120.0
ANY_PORT = ("--port", "0")
QUICK = (*ANY_PORT, "--no-model")
BACKENDS = ["trio", "asyncio"] if THOROUGH else ["asyncio"]
"""The event loops of the talk with a model; the whole demo runs on trio, as for people."""
SAY = """
from component.skills import skill

@skill(read_only=True)
def say(text: str) -> str:
    \"""Say a text.\"""
    return text
"""


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
def staying(
    *arguments: str, program: Sequence[str | Path] = (PROGRAM,), **settings: object
) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [*program, "demo", *arguments],
        env=environment(**settings),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        # Whoever started the tests in the background may have had the signal ignored.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - no lock
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
    "Juliet discovers the agent's skills",
    "<query xmlns='urn:fluux:agent:0#skills'/>",
    "<skill name='echo'",
    "<execute xmlns='urn:fluux:agent:0#execute' skill='echo'>",
    "<output name='output' type='text/plain'>hello, agent</output>",
    "Europe/Paris",
    "<invalid-param xmlns='urn:fluux:agent:0#errors' name='text'/>",
    "<unknown-skill xmlns='urn:fluux:agent:0#errors'/>",
    "I am Demo agent, an automated agent",
    "/help - list my commands",
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
    "state='input-required' revision='1'",
    "<body>May I empty the folder *Archive*?",
    "within 24",
    "<body>No, because Romeo still needs it.</body>",
    "<body>Denied: ",
    "<denied xmlns='urn:fluux:agent:0#errors' helps='nothing'/>",
    "because Romeo still needs it.</text>",
    "value='approve'>",
    "state='completed' revision='4'",
    # By form.
    "node='skill/trip-cost' action='execute'/>",
    "<x xmlns='jabber:x:data' type='form'>",
    "<value>far</value>",
    "Kilometres: expected an integer.",
    "<value>450</value>",
    "<value>about 180 euros</value>",
    # A watch and a schedule that fire.
    "<publish node='news'>",
    "<body>Time for tea!</body>",
    # A memory that its owner edits and deletes.
    "<items node='urn:fluux:agent:0#memory/juliet@localhost'/>",
    "<content type='text/markdown'>Juliet likes green tea.</content>",
    "<publish node='urn:fluux:agent:0#memory/juliet@localhost'>",
    "<body>- favourite_tea: Juliet likes coffee.</body>",
    "<retract node='urn:fluux:agent:0#memory/juliet@localhost'>",
    "<body>I remember nothing about you.</body>",
    # Not at all.
    "Mallory",
    "<service-unavailable xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/>",
)


def steps(text: str) -> list[str]:
    """The steps of what is shown with --xml.

    Every one asks for something and has its answer: an IQ's result or error, or a message.
    """
    found = re.split(r"\n(?=Juliet |Mallory |Nurse )", text)[1:]
    for step in found:
        assert step.count("\n  → ") == 1, step
        assert "\n  ← " in step, step
        assert step.count("\n  → <iq ") == step.count("\n  ← <iq "), step
    return found


def holds_in_order(text: str, shown: Iterable[str]) -> None:
    at = 0
    for each in shown:
        at = text.find(each, at)
        assert at >= 0, each


CONVERSATION = (
    "An XMPP server and an agent run on this machine",
    "starting a server and an agent",
    "  Agent   I am Demo agent, an automated agent",
    # Discovery.
    "  Agent   trip-cost - Say about what a trip costs.",
    "others\n",
    # Execution.
    "  Juliet  trip-cost: kilometres 450, by train, people 2",
    "  Agent   about 180 euros",
    # A confirmation.
    "  Juliet  empty-folder: folder Archive",
    "  Agent   May I empty the folder",
    "  Juliet  yes",
    "  Agent   Approved: ",
    "  Agent   Archive: nothing is older than 30 days any more.",
    # A reminder.
    "  Juliet  /schedule add in 2 seconds",
    "  Agent   Time for tea!\n",
)
HELLO = "  Juliet  Hello!\n"


@pytest.mark.parametrize("backend", ["trio", pytest.param("asyncio", marks=pytest.mark.thorough)])
def test_the_conversation_is_whole_and_leaves_nothing_behind(backend: str, tmp_path: Path) -> None:
    text = show("--backend", backend, "--no-model", TMPDIR=str(tmp_path))
    assert list(tmp_path.iterdir()) == []
    holds_in_order(text, CONVERSATION)
    assert text.endswith("  Agent   Time for tea!\n")
    assert "\x1b" not in text
    assert "xmlns" not in text
    assert "language model" not in text
    assert all(len(line) <= 80 for line in text.splitlines())
    assert len(text.splitlines()) < 60


@pytest.mark.parametrize("backend", ["trio", pytest.param("asyncio", marks=pytest.mark.thorough)])
def test_with_xml_every_stanza_is_shown(backend: str, tmp_path: Path) -> None:
    text = show("--xml", "--backend", backend, "--no-model", TMPDIR=str(tmp_path))
    assert list(tmp_path.iterdir()) == []
    assert "\x1b" not in text
    holds_in_order(" ".join(text.split()), SHOWN)  # the lines are as wide as a terminal
    assert steps(text)
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "Chat with the language model" not in text


@pytest.mark.parametrize("form", [(), ("--xml",)], ids=["conversation", "xml"])
def test_the_small_model_answers_a_greeting(
    command: RunCommand, form: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it says: nothing depends on that."""
    skip_scenes(monkeypatch.setattr)
    monkeypatch.setattr(demo, "_ANSWER_TOKENS", 40)
    # Threads of a model wait actively for each other where others use the cores as well.
    monkeypatch.setattr(local, "_cores", lambda: 1)
    done = command("demo", "--once", *ANY_PORT, *form)
    assert done.exit_code == ExitCode.OK, (done.output, done.exception)
    assert "SmolLM2-135M" in done.stdout
    if form:
        (greeted, usage, status) = steps(done.stdout)
        assert re.search(r"  ← (.|\n)*<body>[^<]*\w[^<]*</body>", greeted), greeted
        assert "tokens" in usage
        assert "Model: SmolLM2-135M-Instruct" in " ".join(status.split())
    else:
        answers = done.stdout.partition(HELLO)[2]
        assert len(re.findall(r"^  Agent   ", answers, re.MULTILINE)) >= 2  # with the notice


@contextmanager
def scripted(answer: Callable[[Request], Calls | Text]) -> Iterator[Endpoint]:
    """A model that answers by what was said so far, and what tools gave."""
    with in_thread() as endpoint:
        endpoint.otherwise = answer
        yield endpoint


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_model_that_wants_what_nobody_asked_for_is_denied_that(
    command: RunCommand, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_scenes(monkeypatch.setattr)

    def step(request: Request) -> Calls | Text:
        if any(message["role"] == "tool" for message in request.messages):
            return Text("Then not.")
        return Calls(("empty-folder", {"folder": "Drafts"}))

    with scripted(step) as model:
        text = command(
            "demo", "--once", *ANY_PORT, "--backend", backend, "--model-url", model.url,
            "--model", "tiny",
        ).stdout  # fmt: skip
    holds_in_order(
        text,
        (
            "Chat with the language model tiny",
            HELLO,
            "  Agent   May I empty the folder",
            "  Juliet  no\n",
            "  Agent   Denied: ",
            "  Agent   Then not.\n",
        ),
    )
    assert {"time", "empty-folder", "trip-cost"} == set(model.requests[0].tools)


def test_a_model_that_does_not_answer_in_time_is_left_out(
    command: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_scenes(monkeypatch.setattr, "_execute")
    monkeypatch.setattr(demo_scenes, "_MODEL_S", 0.2)
    with in_thread() as endpoint:
        endpoint.otherwise = Stall()
        model = ("--model-url", endpoint.url, "--model", "tiny")
        text = command("demo", "--once", *ANY_PORT, *model).stdout
    holds_in_order(text, ("the model is too slow on this machine", "about 180 euros"))


@pytest.mark.parametrize("backend", BACKENDS)
def test_who_has_seen_enough_ends_it(backend: str) -> None:
    with in_thread() as endpoint:
        endpoint.otherwise = Stall()
        model = ("--model-url", endpoint.url, "--model", "tiny")
        with staying("--backend", backend, *ANY_PORT, *model) as process:
            read_up_to(process, "the model is thinking")
            process.send_signal(signal.SIGINT)
            assert process.wait(LIMIT) == ExitCode.INTERRUPTED
            assert process.stdout is not None
            assert "Traceback" not in process.stdout.read()


def test_without_the_small_model_the_rest_is_shown(
    command: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *more: None if name == "xllamacpp" else found(name, *more),
    )
    skip_scenes(monkeypatch.setattr, "a_stranger")
    text = " ".join(command("demo", "--xml", "--once", *ANY_PORT).stdout.split())
    holds_in_order(text, SHOWN[-2:])
    assert "pip install 'xmpp-agent-component[local]'" in text
    assert "<body>Hello!</body>" not in text


def test_a_model_of_ones_own_has_an_address_and_a_name(command: RunCommand) -> None:
    done = command("demo", "--once", "--model", "tiny")
    assert done.exit_code == ExitCode.USAGE
    assert "--model-url and --model must be given together" in done.stderr


@pytest.mark.usefixtures("command")  # restores the logs
def test_colours_are_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    skip_scenes(monkeypatch.setattr, "a_stranger")
    done = CliRunner().invoke(
        group, ["demo", "--xml", "--once", *QUICK], env=environment(), color=True
    )
    assert done.exit_code == ExitCode.OK
    assert "\x1b[" in done.stdout
    assert "<service-unavailable" in done.stdout


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.thorough)]
)
def test_it_stays_up_for_a_client_of_ones_own_on_another_port_if_its_own_is_taken(
    embedded: Embedded, tmp_path: Path, number: signal.Signals
) -> None:
    own = tmp_path / "own.py"  # with skills of one's own, nothing else is shown first
    own.write_text(SAY)
    with staying("--no-model", "--port", str(embedded.port), "--skills", str(own)) as process:
        text = read_up_to(process, "Press Ctrl-C to exit")
        told = dict(
            re.findall(r"^  (account|password|server|trust|write to)\s+(.*)$", text, re.MULTILINE)
        )
        address, port = re.findall(r"^(\S+), port (\d+), STARTTLS$", told["server"])[0]
        assert int(port) != embedded.port
        ca_file = Path(re.findall(r"^the authority in (\S+),$", told["trust"])[0])
        domain = told["write to"].partition(",")[0]
        account = told["account"]
        with SlixClient(account, told["password"], address, int(port), ca_file=ca_file) as you:
            assert you.encrypted
            assert output(you.iq(domain, execute("echo", text="me too"), "set")) == "me too"
            you.send_raw(f"<message to='{domain}' type='chat'><body>/skills</body></message>")
            notice, answer = (
                you.messages.take(from_(domain, "chat")).findtext("{*}body", "") for _ in range(2)
            )
            assert notice.startswith("I am Demo agent, an automated agent")
            assert " (echo): " in answer
            you.send_raw(f"<presence to='{domain}' type='subscribe'/>")
            you.presences.take(from_(domain))
            # Whoever it does not name is refused.
            with SlixClient("mallory@localhost", "demo", address, int(port)) as mallory:
                reply = mallory.iq(domain, execute("echo", text="x"), "set")
                assert condition(reply) == "service-unavailable"
            process.send_signal(number)
            assert process.wait(LIMIT) == ExitCode.OK
        assert process.stdout is not None
        assert process.stdout.read() == "\nGood-bye.\n"
    assert not ca_file.exists()


def test_on_a_terminal_it_says_how_to_go_on_until_ctrl_c() -> None:
    with PseudoTerminal(PROGRAM, "demo", *QUICK, env=environment()) as terminal:
        terminal.until("Time for tea!")
        terminal.until("xmpp-agent init")
        terminal.types(INTERRUPT, after="Press Ctrl-C to exit.")
        assert terminal.ends() == ExitCode.OK
    shown = re.sub(r"\x1b\[[0-9;]*[mK]", "", terminal.shown)
    assert "Good-bye.\n" in shown
    assert "starting a server and an agent" in shown
    invitation = shown.partition("The demo keeps running.")[2]
    assert all(len(line) <= 80 for line in invitation.splitlines() if "the authority" not in line)


def test_whoever_reads_may_stop_reading() -> None:
    with staying(*QUICK) as process:
        read_up_to(process, "  Agent   about 180 euros")
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(LIMIT) == ExitCode.FAILURE


def test_xml_is_laid_out_for_people() -> None:
    xml = (
        "<a xmlns='urn:a' note='&quot;&lt;&apos;'><b/><c xmlns='urn:c' xml:lang='en'>t &amp; u"
        f"<c/></c><b>{'long words ' * 7}</b><b>{'x' * 70}</b><b>one\n{'two ' * 20}</b></a>"
    )
    assert list(xml_lines(fromstring(xml), 60)) == [
        "<a xmlns='urn:a' note='&quot;&lt;&apos;'>",
        "  <b/>",
        "  <c xmlns='urn:c' xml:lang='en'>",
        "    t &amp; u",
        "    <c/>",
        "  </c>",
        "  <b>long words long words long words long words long words",
        "      long words long words</b>",
        f"  <b>{'x' * 70}</b>",
        "  <b>one",
        f"  {'two ' * 13}two",
        "      two two two two two two</b>",
        "</a>",
    ]
