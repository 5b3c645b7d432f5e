import importlib.util
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import fromstring

import pytest
from click.testing import CliRunner

from component.cli import demo, demo_scenes
from component.cli.demo_screen import xml_lines
from component.cli.frame import ExitCode
from component.cli.group import group
from component.config import Settings
from component.models import local
from tests.component.cli.conftest import RunCommand
from tests.component.cli.embedded import Embedded
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
ONLY_THE_TALK = """
import sys
from component.cli import main
from tests.component.cli.shorter_demo import skip_scenes
skip_scenes(setattr)
main.main()
"""


@pytest.fixture
def talk(command: RunCommand, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """What `demo --once` prints without most scenes before the talk with a model."""
    skip_scenes(monkeypatch.setattr, "short_requests")  # in which the first notice comes

    def run(*arguments: str) -> str:
        done = command("demo", "--once", *ANY_PORT, *arguments)
        assert done.exit_code == ExitCode.OK, (done.output, done.exception)
        assert done.stderr == ""
        return done.stdout

    return run


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
    '<body>May I run "Empty folder" (empty-folder)? Pretend to delete old notes from a folder.',
    "within 24",
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
    """The steps of what is shown.

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


QUESTION = '<body>May I run "Empty folder" (empty-folder)?'
EMPTIED = "Archive: nothing is older than 30 days any more."


@pytest.mark.parametrize("backend", ["trio", pytest.param("asyncio", marks=pytest.mark.thorough)])
def test_the_show_is_whole_in_plain_text_and_leaves_nothing_behind(
    backend: str, tmp_path: Path
) -> None:
    text = show("--backend", backend, "--no-model", TMPDIR=str(tmp_path))
    assert list(tmp_path.iterdir()) == []
    assert "\x1b" not in text
    holds_in_order(text, SHOWN)
    assert steps(text)
    assert all(len(line) <= 110 for line in text.splitlines())
    assert "Log in with a client of your own" not in text
    assert "Chat with the language model" not in text


@pytest.mark.thorough
def test_the_whole_conversation_with_the_small_model(talk: Callable[..., str]) -> None:
    text = talk()
    steps(text)
    _, _, talked = text.partition("Chat with the language model")
    holds_in_order(
        talked,
        (
            "<body>What is the capital of France?</body>",
            "<body>What time is it in Europe/Paris?</body>",
            QUESTION,
            "<body>yes</body>",
            "Model: SmolLM2-135M-Instruct",
        ),
    )


def test_a_conversation_with_the_small_model(
    talk: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A greeting, and a folder that is emptied, with an agent that can do nothing else: reading the
    descriptions of skills and writing long answers takes the model long.
    """
    settings = demo._settings

    def for_one_skill(*of: Any) -> Settings:
        made = settings(*of)
        agents = [one.model_copy(update={"skills": ("empty-folder",)}) for one in made.agents]
        return made.model_copy(update={"agents": tuple(agents)})

    monkeypatch.setattr(demo, "_settings", for_one_skill)
    monkeypatch.setattr(demo, "_ANSWER_TOKENS", 40)
    monkeypatch.setattr(demo_scenes, "_TALK", (("greets the agent", "Hello!"),))
    # Threads of a model wait actively for each other where others use the cores as well.
    monkeypatch.setattr(local, "_cores", lambda: 1)
    text = talk()
    found = steps(text)
    _, _, talked = text.partition("Chat with the language model")
    assert "SmolLM2-135M" in talked
    first = next(step for step in found if "<body>Hello!</body>" in step)
    assert re.search(r"  ← (.|\n)*<body>[^<]*\w[^<]*</body>", first), first
    # It is asked about, whatever the model has made of the words; and it is this that runs.
    holds_in_order(
        talked,
        (
            "<body>Please empty the folder Archive.</body>",
            QUESTION,
            "<action type='empty-folder'",
            "<body>yes</body>",
            '<body>Approved. "Empty folder" (empty-folder): folder: "Archive"',
            "<body>/usage</body>",
            "tokens",
            "<body>/status</body>",
            "Model: SmolLM2-135M-Instruct",
        ),
    )


@contextmanager
def scripted(answer: Callable[[list[str], list[str]], Calls | Text]) -> Iterator[Endpoint]:
    """A model that answers by what was said so far, and what tools gave."""

    def step(request: Request) -> Calls | Text:
        by_role: dict[str, list[str]] = {"user": [], "tool": []}
        for message in request.messages:
            by_role.setdefault(message["role"], []).append(str(message.get("content")))
        said = [text.rpartition("\n\n")[2] for text in by_role["user"]]
        return answer(said, by_role["tool"])

    with in_thread() as endpoint:
        endpoint.otherwise = step
        yield endpoint


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_conversation_with_a_model_of_ones_own(talk: Callable[..., str], backend: str) -> None:
    """It wants another folder first, which is denied, and then does not call anything."""

    def answer(said: list[str], given: list[str]) -> Calls | Text:
        if "nothing is older" in "".join(given[-1:]):
            return Text("It is empty now.")
        if said[-1] == "Please empty the folder Archive.":
            return Text("You said no.") if given else Calls(("empty-folder", {"folder": "Drafts"}))
        if said[-1].startswith("Use empty-folder"):
            return Text("Which folder?")
        if said[-1] == "empty-folder Archive":
            return Calls(("empty-folder", {"folder": "Archive"}))
        return Text(f"You said: {said[-1]}")

    with scripted(answer) as model:
        text = talk("--backend", backend, "--model-url", model.url, "--model", "tiny")
    steps(text)
    holds_in_order(
        text,
        (
            "Chat with the language model tiny",
            "<body>You said: Hello!</body>",
            "<body>Please empty the folder Archive.</body>",
            'folder: "Drafts"',
            "did not mean",
            "<body>no, I meant the folder Archive</body>",
            "<body>Denied. ",
            "<body>You said no.</body>",
            "<body>Which folder?</body>",
            "<body>empty-folder Archive</body>",
            QUESTION,
            "<body>yes</body>",
            "<body>Approved. ",
            "<body>It is empty now.</body>",
            "Model: tiny",
        ),
    )
    assert {"time", "empty-folder", "trip-cost"} == set(model.requests[0].tools)


def test_a_model_that_never_does_what_was_asked_empties_nothing(talk: Callable[..., str]) -> None:
    with scripted(lambda said, given: Text("I would rather not.")) as model:
        text = talk("--model-url", model.url, "--model", "tiny")
    steps(text)
    assert text.count("<body>I would rather not.</body>") == 6
    holds_in_order(text, ("nothing was emptied", "<body>/usage</body>"))
    assert QUESTION not in text.partition("Chat with the language model")[2]


@pytest.mark.parametrize("backend", BACKENDS)
def test_who_has_seen_enough_ends_it(backend: str) -> None:
    with in_thread() as endpoint:
        endpoint.otherwise = Stall()
        model = ("--model-url", endpoint.url, "--model", "tiny")
        program = (sys.executable, "-c", ONLY_THE_TALK)
        with staying("--backend", backend, *ANY_PORT, *model, program=program) as process:
            read_up_to(process, "the model is thinking")
            process.send_signal(signal.SIGINT)
            assert process.wait(LIMIT) == ExitCode.FAILURE
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
    text = command("demo", "--once", *ANY_PORT).stdout
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
    done = CliRunner().invoke(group, ["demo", "--once", *QUICK], env=environment(), color=True)
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
        ca_file = Path(re.findall(r"^the authority in (\S+), or ", told["trust"])[0])
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


def test_whoever_reads_may_stop_reading() -> None:
    with staying(*QUICK) as process:
        read_up_to(process, "Juliet discovers")
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
