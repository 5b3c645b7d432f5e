import json
import socket
import subprocess
from pathlib import Path

import pytest
from click.testing import Result

from component.cli.frame import ExitCode
from component.memory import embedding
from component.models.offered_tools import RefusedTool, RefusedTools
from tests.component.cli.conftest import RunCommand
from tests.component.cli.embedded import Embedded
from tests.component.models.endpoint import Endpoint, in_thread
from tests.servers.agent_process import PROGRAM, AgentProcess, environment

ALL = [
    *("configuration", "policy", "skills", "model", "confinement", "storage", "memory"),
    *("connection", "probe", "service discovery", "memory homes", "files"),
]


def checks(result: Result) -> dict[str, tuple[str, str]]:
    """Verdict and text of each check, by its name, from the output of --json."""
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert all(line.keys() == {"name", "verdict", "text"} for line in lines)
    return {line["name"]: (line["verdict"], line["text"]) for line in lines}


def verdicts(result: Result) -> dict[str, str]:
    return {name: verdict for name, (verdict, _) in checks(result).items()}


def the_one_that_failed(result: Result) -> tuple[str, str]:
    """Name and text of the only check that failed."""
    assert result.exit_code == ExitCode.FAILURE
    assert result.stderr == "error: 1 check failed.\n"
    ((name, text),) = [
        (name, text) for name, (verdict, text) in checks(result).items() if verdict == "failed"
    ]
    return name, text


def test_doctor_reports_every_check_as_ok(command: RunCommand, embedded: Embedded) -> None:
    result = command("doctor", "--json")
    assert result.exit_code == ExitCode.OK, result.output
    assert result.stderr == ""
    assert verdicts(result) == dict.fromkeys(ALL, "ok")
    found = checks(result)
    assert found["policy"][1] == "everybody of localhost may use the agent"
    assert found["skills"][1] == "25 skills are offered"
    assert found["connection"][1] == (f"127.0.0.1:{embedded.port} accepted agent.localhost")


def test_doctor_prints_one_line_per_check_for_people(command: RunCommand) -> None:
    result = command("doctor", "--config", "agent.toml")
    assert result.exit_code == ExitCode.OK, result.output
    lines = [line.split(maxsplit=1) for line in result.stdout.splitlines()]
    lines = [line for line in lines if line[0] == "ok"]
    assert all(line.startswith(name) for (_, line), name in zip(lines, ALL, strict=True))
    assert "\x1b" not in result.output


@pytest.mark.thorough
def test_doctor_in_its_own_process_fails_without_showing_the_secret(
    embedded: Embedded, tmp_path: Path
) -> None:
    (tmp_path / "agent.toml").write_text(embedded.agent_toml())
    secret = "another one"
    done = subprocess.run(
        [PROGRAM, "doctor"],
        cwd=tmp_path,
        env={**environment(), "AGENT_SECRET": secret},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == ExitCode.FAILURE, done.stdout + done.stderr
    assert secret not in done.stdout + done.stderr
    assert "\x1b" not in done.stdout + done.stderr


# Each thing that can be wrong, one at a time.


def test_doctor_refuses_a_missing_configuration_file(command: RunCommand) -> None:
    result = command("doctor", "--config", "nosuch.toml")
    assert result.exit_code == ExitCode.CONFIG
    assert result.stdout == ""
    assert result.stderr.startswith("error: nosuch.toml: does not exist; `xmpp-agent init`")


def test_doctor_names_each_mistake_in_the_configuration_file(command: RunCommand) -> None:
    path = Path("agent.toml")
    path.write_text(path.read_text() + 'prot = 1\n[agent]\nallowed_jids = "all"\n')
    result = command("doctor")
    assert result.exit_code == ExitCode.CONFIG
    unknown, wrong = result.stderr.splitlines()
    assert unknown == (
        "error: agent.toml, line 6: server.prot is not a setting; did you mean server.port?"
    )
    assert wrong.startswith("error: agent.toml, line 8: agent.allowed_jids must be a list")


def test_doctor_reports_an_allowed_address_with_a_resource(command: RunCommand) -> None:
    result = command("doctor", "--json", agent__allowed_jids=["juliet@localhost/phone"])
    name, text = the_one_that_failed(result)
    assert name == "policy"
    assert text.startswith("agent.allowed_jids: 'juliet@localhost/phone': It has a resource")
    # The rest does not rest on it.
    assert list(checks(result)) == ALL


def test_doctor_reports_an_avatar_of_another_image_type(command: RunCommand) -> None:
    Path("avatar.png").write_bytes(b"GIF89a")
    name, text = the_one_that_failed(command("doctor", "--json", agent__avatar="avatar.png"))
    assert name == "avatar"
    assert (
        text == "agent.avatar: avatar.png is not a PNG image but looks like GIF: convert it to PNG."
    )


def test_doctor_warns_that_the_policy_admits_nobody(command: RunCommand) -> None:
    for setting in ("agent__allowed_jids", "agent__allowed_domains"):
        result = command("doctor", "--json", **{setting: []})
        assert result.exit_code == ExitCode.OK
        assert checks(result)["policy"] == (
            "warning",
            "nobody may use the agent, because allowed_jids or allowed_domains is empty",
        )


def test_doctor_warns_of_an_account_whose_domain_is_not_allowed(command: RunCommand) -> None:
    jids = ["juliet@localhost", "romeo@elsewhere.example"]
    verdict, text = checks(command("doctor", "--json", agent__allowed_jids=jids))["policy"]
    assert verdict == "warning"
    assert text == (
        "agent.allowed_jids: 'romeo@elsewhere.example' cannot use the agent: a sender must be in"
        " both lists, so add elsewhere.example to agent.allowed_domains"
    )
    # However the domain is spelt.
    found = checks(
        command(
            "doctor",
            "--json",
            agent__allowed_jids=["juliet@LOCALHOST"],
            agent__allowed_domains=["LocalHost"],
        )
    )
    assert found["policy"][0] == "ok", found["policy"]


def test_doctor_reports_a_missing_skill_module(command: RunCommand) -> None:
    name, text = the_one_that_failed(command("doctor", "--json", skills__modules=["nosuch_skills"]))
    assert name == "skills"
    assert text.startswith("There is no module nosuch_skills: install it")


def test_doctor_reports_a_skill_module_that_cannot_be_loaded(command: RunCommand) -> None:
    Path("own.py").write_text("1 / 0\n")
    name, text = the_one_that_failed(command("doctor", "--json", skills__modules=["./own.py"]))
    assert name == "skills"
    assert text.endswith("own.py cannot be loaded: ZeroDivisionError: division by zero")


def test_doctor_reports_a_file_in_place_of_the_data_directory(command: RunCommand) -> None:
    Path("data").write_text("")
    name, text = the_one_that_failed(command("doctor", "--json"))
    assert name == "storage"
    assert "there is a file where a directory should be" in text


def test_doctor_reports_and_repairs_files_that_others_can_read(command: RunCommand) -> None:
    data = Path("data")
    data.mkdir(mode=0o700)
    (data / "old").write_text("x")
    (data / "old").chmod(0o644)
    verdict, text = checks(command("doctor", "--json"))["permissions"]
    assert verdict == "warning"
    assert "old can be read" in text
    assert "--repair" in text
    assert checks(command("doctor", "--json", "--repair"))["permissions"][0] == "ok"
    assert (data / "old").stat().st_mode & 0o777 == 0o600
    assert "permissions" not in checks(command("doctor", "--json"))


def test_doctor_reports_an_audit_log_that_cannot_be_written(command: RunCommand) -> None:
    Path("data").mkdir()
    Path("data/audit").write_text("")
    name, text = the_one_that_failed(command("doctor", "--json"))
    assert name == "storage"
    assert text == (
        "The audit log cannot be written: data/audit is a file and should be a directory."
        " Move it away."
    )
    found = verdicts(command("doctor", "--json", audit__enabled=False))
    assert found["storage"] == "ok"


def test_doctor_reports_a_refused_connection(command: RunCommand) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    result = command("doctor", "--json", server__port=port)
    name, text = the_one_that_failed(result)
    assert name == "connection"
    assert text.startswith(f"127.0.0.1:{port} refuses connections: start the XMPP server")
    assert list(checks(result)) == ALL[: ALL.index("probe")]


def test_doctor_reports_a_wrong_secret(command: RunCommand) -> None:
    name, text = the_one_that_failed(command("doctor", "--json", secret="some other secret"))
    assert name == "connection"
    assert "refused the handshake for agent.localhost: the component's secret differs" in text


def test_doctor_reports_a_domain_that_the_server_does_not_know(command: RunCommand) -> None:
    result = command("doctor", "--json", server__component_domain="nosuch.localhost")
    name, text = the_one_that_failed(result)
    assert name == "connection"
    assert "has no component nosuch.localhost: add it" in text


def test_doctor_does_not_disconnect_a_running_service(
    command: RunCommand, embedded: Embedded, tmp_path: Path
) -> None:
    with AgentProcess(embedded, tmp_path / "service") as service:
        service.connected()
        data = str(service.directory / "data")
        result = command("doctor", "--json", storage__path=data)
        assert result.exit_code == ExitCode.OK
        verdict, text = checks(result)["storage"]
        assert verdict == "warning"
        assert f"is in use by process {service.pid}" in text
        found = checks(result)
        assert found.pop("service")[0] == "ok"
        assert list(found) == [*ALL[: ALL.index("connection")], "files"]

        # Settings that the service does not have yet.
        path = Path("agent.toml")
        path.write_text(path.read_text() + "# changed\n")
        result = command("doctor", "--json", storage__path=data)
        verdict, text = checks(result)["service"]
        assert verdict == "warning"
        assert text.endswith("and says what needs a restart.")
        status = command("status", "--json", storage__path=data)
        assert status.stderr.startswith("note: The running service has other settings")
        assert json.loads(status.stdout)["domain"] == embedded.component_domain
        agents = command("agents", "list", storage__path=data)
        assert "The running service has no command 'agents'. The running service has other" in (
            agents.stderr
        )
        assert "[llm]" not in agents.stderr

        # With another data directory only the server can tell.
        result = command("doctor", "--json")
        assert result.exit_code == ExitCode.OK
        verdict, text = checks(result)["connection"]
        assert verdict == "warning"
        assert "another process is connected" in text
        assert service.stop() == 0
        assert len(service.log("connected")) == 1


def test_doctor_warns_of_settings_that_this_release_ignores(command: RunCommand) -> None:
    path = Path("agent.toml")
    path.write_text(path.read_text() + '[skills]\nweb_search = "the key of a service"\n')
    result = command("doctor", "--json")
    assert result.exit_code == ExitCode.OK
    assert checks(result)["settings"] == (
        "warning",
        "not supported by this release and ignored: skills.web_search",
    )
    assert "the key of a service" not in result.output


# What agents remember, who they are, and what watches them.


def test_doctor_reports_a_file_in_place_of_the_memory_directory(command: RunCommand) -> None:
    Path("notes").write_text("")
    name, text = the_one_that_failed(command("doctor", "--json", memory__path="notes"))
    assert name == "memory"
    assert "there is a file where a directory should be" in text
    assert text.endswith("The directory is set by path in [memory].")


def test_run_names_the_key_of_a_memory_that_cannot_be_used(command: RunCommand) -> None:
    Path("notes").write_text("")
    result = command("run", memory__path="notes")
    assert result.exit_code == 1
    assert "The directory is set by path in [memory]." in result.output
    Path("other").mkdir()
    Path("other/memory").write_text("")
    result = command("run", storage__path="other")
    assert "The directory is below path in [storage]; path in [memory]" in result.output


def scopes(writers: str) -> str:
    return (
        f'[[memory.scopes]]\nname = "kitchen"\nmembers = ["ann@localhost"]\nwriters = {writers}\n'
    )


def test_doctor_reports_a_scope_writer_with_an_invalid_address(command: RunCommand) -> None:
    path = Path("agent.toml")
    path.write_text(path.read_text() + scopes('["a b@@c"]'))
    name, text = the_one_that_failed(command("doctor", "--json"))
    assert name == "memory"
    assert text.startswith("memory.scopes.kitchen.writers: 'a b@@c': It is not an address")


def test_doctor_warns_of_a_scope_writer_who_is_not_a_member(command: RunCommand) -> None:
    path = Path("agent.toml")
    path.write_text(path.read_text() + scopes('["ann@localhost", "bob@localhost"]'))
    result = command("doctor", "--json")
    assert result.exit_code == ExitCode.OK
    verdict, text = checks(result)["memory"]
    assert verdict == "warning"
    assert text.startswith("bob@localhost is among the writers of the scope kitchen and not among")
    assert "ann@" not in text


def test_doctor_reports_local_vectors_as_ok(command: RunCommand) -> None:
    result = command("doctor", "--json", memory__vectors="local")
    assert checks(result)["memory"][0] == "ok"


def test_doctor_warns_of_vectors_without_the_extra(
    command: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding, "_version", lambda package: "")
    result = command("doctor", "--json", memory__vectors="local")
    assert result.exit_code == ExitCode.OK
    verdict, text = checks(result)["memory"]
    assert verdict == "warning"
    assert "Install xmpp-agent-component[vectors]" in text


def test_doctor_warns_of_vectors_whose_model_does_not_start(
    command: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = Path("worker.py").absolute()
    worker.write_text("raise ImportError('no engine for this processor')")
    monkeypatch.setattr(embedding, "_WORKER", worker)
    result = command("doctor", "--json", memory__vectors="local")
    assert result.exit_code == ExitCode.OK
    verdict, text = checks(result)["memory"]
    assert verdict == "warning"
    assert "The model of the extra `vectors` does not start" in text


def test_doctor_warns_of_a_budget_too_small_for_any_call(command: RunCommand) -> None:
    llm = {"llm__provider": "local", "llm__max_tokens_per_request": 500}
    found = checks(command("doctor", "--json", **llm, budgets__per_principal__tokens=500))
    verdict, text = found["budgets"]
    assert verdict == "warning"
    assert text.startswith("budgets.per_principal has 500 tokens, but each call reserves up to")
    assert "budgets" not in checks(
        command("doctor", "--json", **llm, budgets__per_principal__tokens=5000)
    )


def test_doctor_warns_of_a_default_persona_that_cannot_be_used(command: RunCommand) -> None:
    model = {"llm__provider": "local", "personas__default": "coding-mentor"}
    found = checks(command("doctor", "--json", **model))
    assert found["personas"][0] == "warning"
    assert "There is no data/memory/personas/coding-mentor/persona.toml." in found["personas"][1]
    folder = Path("data/memory/personas/coding-mentor")
    folder.mkdir(parents=True)
    (folder / "persona.toml").write_text("[persona]\nid = 'other'\n")
    assert "Name them alike." in checks(command("doctor", "--json", **model))["personas"][1]
    (folder / "persona.toml").write_text("[persona]\nid = 'coding-mentor'\n")
    assert "personas" not in checks(command("doctor", "--json", **model))
    model["personas__default"] = "../coding-mentor"
    assert "is no id" in checks(command("doctor", "--json", **model))["personas"][1]


def test_doctor_warns_of_any_persona_that_cannot_be_used(command: RunCommand) -> None:
    folder = Path("data/memory/personas/mentor")
    folder.mkdir(parents=True)
    (folder / "persona.toml").write_text("[persona]\nid = 'mentr'\n")
    verdict, text = checks(command("doctor", "--json", llm__provider="local"))["personas"]
    assert verdict == "warning"
    assert text.startswith("the persona 'mentor' cannot be used. ")
    assert "Name them alike." in text


def test_doctor_warns_of_sharing_personas_that_nobody_may_make(command: RunCommand) -> None:
    model = {"llm__provider": "local", "personas__allow_sharing": "true"}
    verdict, text = checks(command("doctor", "--json", **model))["personas"]
    assert (verdict, "has no effect while" in text) == ("warning", True)
    model["personas__allow_user_personas"] = "true"
    assert "personas" not in checks(command("doctor", "--json", **model))


def test_doctor_warns_of_agents_without_a_model_or_a_skill(command: RunCommand) -> None:
    path = Path("agent.toml")
    entry = '[[agents]]\nname = "clerk"\nskills = ["time", "memory_*", "{}"]\n'
    path.write_text(path.read_text() + entry.format("echo"))
    verdict, text = checks(command("doctor", "--json"))["agents"]
    assert (verdict, text) == (
        "warning",
        "agents are declared in [[agents]], but they need a model: add [llm]",
    )
    assert "agents" not in checks(command("doctor", "--json", llm__provider="local"))
    path.write_text(path.read_text().replace('"echo"', '"tiem*"'))
    text = checks(command("doctor", "--json", llm__provider="local"))["skill names"][1]
    assert text.startswith("'tiem*' in the skills of clerk matches no skill")


def test_doctor_warns_of_a_budget_in_dollars_without_a_known_price(
    command: RunCommand,
) -> None:
    path = Path("agent.toml")
    toml = path.read_text()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    nobody = f'base_url = "http://127.0.0.1:{port}"'
    model = f'[llm]\nprovider = "openai"\nmodel = "new"\napi_key = "k"\n{nobody}\n'
    path.write_text(f"{toml}{model}[budgets.total]\ntokens = 1000000\n")
    assert "budgets" not in checks(command("doctor", "--json"))
    path.write_text(f"{toml}{model}[budgets.total]\nusd = 5\n")
    verdict, text = checks(command("doctor", "--json"))["budgets"]
    assert verdict == "warning"
    assert text.startswith("the price of the model in llm is unknown")
    path.write_text(f"{toml}{model}usd_per_million_in = 1\n[budgets.total]\nusd = 5\n")
    assert "budgets" not in checks(command("doctor", "--json"))


def test_doctor_reports_a_metrics_port_that_is_in_use(command: RunCommand) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        name, text = the_one_that_failed(command("doctor", "--json", metrics__listen=address))
        assert name == "metrics"
        assert text.endswith("Set listen in [metrics] to another address.")
    found = checks(command("doctor", "--json", metrics__listen=address))
    assert found["metrics"][0] == "ok"


# The language models, which are asked nothing.


def of_model(command: RunCommand, endpoint: Endpoint, **options: object) -> tuple[str, str]:
    """What is found of a model at the endpoint."""
    given = {"llm__provider": "openai", "llm__model": "tiny", "llm__base_url": endpoint.url}
    found = checks(command("doctor", "--json", **{**given, **options}))
    assert all(request.method == "GET" for request in endpoint.requests)
    return found["model"]


def test_doctor_says_that_no_model_is_configured(command: RunCommand) -> None:
    verdict, text = checks(command("doctor", "--json"))["model"]
    assert (verdict, text) == ("ok", "no language model is configured: agents only answer commands")


def test_doctor_reports_the_bundled_model_as_ok(command: RunCommand) -> None:
    verdict, text = checks(command("doctor", "--json", llm__provider="local"))["model"]
    assert verdict == "ok"
    assert text == "SmolLM2-135M-Instruct is there, with a context of 8,192 tokens"


def test_doctor_reports_a_model_file_of_another_format(command: RunCommand, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_text("not really")
    result = command("doctor", "--json", llm__provider="local", llm__model=str(path))
    name, text = the_one_that_failed(result)
    assert name == "model"
    assert "is not a GGUF file" in text
    assert list(checks(result)) == ALL


@pytest.mark.parametrize("backend", ["trio", "asyncio"])
def test_doctor_reports_a_provider_that_lists_the_model_as_ok(
    command: RunCommand, backend: str
) -> None:
    with in_thread() as endpoint:
        endpoint.models = ["other", "tiny"]
        found = of_model(command, endpoint, backend=backend)
        assert found == ("ok", f"{endpoint.url} answers, and has tiny")
        endpoint.models = ["tiny:latest"]
        assert of_model(command, endpoint)[0] == "ok"


def test_doctor_names_the_tools_that_a_model_has_refused(command: RunCommand) -> None:
    data = Path("refusing")
    data.mkdir(mode=0o700)
    RefusedTools(data).add(RefusedTool("mcp__find", "tiny", "http://models.example", "Bad schema."))
    with in_thread() as endpoint:
        llm = {"llm__provider": "vllm", "llm__model": "tiny", "llm__base_url": endpoint.url}
        result = command("doctor", "--json", storage__path=str(data), **llm)
    verdict, text = checks(result)["tools"]
    assert verdict == "warning"
    assert "tiny at http://models.example refuses the tool mcp__find" in text
    assert "Bad schema." in text


def test_doctor_warns_of_a_provider_that_does_not_list_the_model(command: RunCommand) -> None:
    with in_thread() as endpoint:
        endpoint.models = ["other"]
        verdict, text = of_model(command, endpoint)
        assert verdict == "warning"
        assert text == f"{endpoint.url} answers, and does not list tiny: is llm.model right?"


def test_doctor_accepts_a_provider_that_does_not_list_its_models(command: RunCommand) -> None:
    with in_thread() as endpoint:
        verdict, text = of_model(command, endpoint)
        assert (verdict, text) == ("ok", f"{endpoint.url} answers, and does not tell its models")


def test_doctor_reports_a_key_that_the_provider_rejects(command: RunCommand) -> None:
    with in_thread() as endpoint:
        endpoint.models, endpoint.key = ["tiny"], "right"
        assert of_model(command, endpoint, llm__api_key="right")[0] == "ok"
        verdict, text = of_model(command, endpoint, llm__api_key="sesame")
        assert verdict == "failed"
        assert text == f"{endpoint.url} does not accept the key: correct llm.api_key"


def test_doctor_reports_a_missing_key(command: RunCommand) -> None:
    result = command("doctor", "--json", llm__provider="openai", llm__model="gpt-4.1-mini")
    name, text = the_one_that_failed(result)
    assert name == "model"
    assert text.startswith("llm.api_key is missing, which openai needs")


def test_doctor_reports_a_provider_that_cannot_be_reached(command: RunCommand) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and not listening
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        result = command(
            "doctor", "--json", llm__provider="vllm", llm__model="tiny", llm__base_url=url
        )
    name, text = the_one_that_failed(result)
    assert name == "model"
    assert text == f"{url} cannot be reached: does it run, and is llm.base_url right?"


def test_doctor_checks_each_model_of_the_settings(command: RunCommand) -> None:
    with in_thread() as endpoint:
        endpoint.models = ["tiny"]
        tier = {"provider": "openai", "model": "large", "base_url": endpoint.url}
        result = command(
            "doctor",
            "--json",
            llm__provider="local",
            llm__tiers={"heavy": tier},
            llm__fallback=[tier | {"model": "tiny"}],
        )
    found = verdicts(result)
    assert found["model"] == "ok"
    assert found["model llm.tiers.heavy"] == "warning"
    assert found["model llm.fallback[0]"] == "ok"
