import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from component.app.features import load, make_settings, tables
from component.config import Server, Settings, SettingsError
from component.config.describe import toml
from component.config.problems import env_name
from tests.component.smallest_settings import ENVIRON, SMALLEST


def test_the_smallest_file_has_all_defaults(read: Any) -> None:
    settings = read(SMALLEST)
    assert settings.server.port == 5275
    assert settings.server.component_secret.get_secret_value() == "geheim"
    assert settings.backend == "trio"
    assert settings.agent.allowed_jids is None
    assert settings.allowed_domains == settings.agent.allowed_domains == ("example.com",)
    assert settings.policy.rules == ()
    assert settings.notice is None


def test_the_environment_wins_over_the_file(read: Any) -> None:
    settings = read(
        SMALLEST + '[agent]\nallowed_jids = ["a@example.com"]\n',
        XMPP_AGENT_SERVER__HOST="xmpp.example.com",
        XMPP_AGENT_SERVER__TLS="true",
        XMPP_AGENT_AGENT__ALLOWED_JIDS='["*"]',
        XMPP_AGENT_BACKEND="asyncio",
        XMPP_AGENT_POLICY__RULES='[{"skills": ["x"], "allowed_jids": []}]',
    )
    assert settings.server.host == "xmpp.example.com"
    assert settings.server.tls is True
    assert settings.server.component_domain == "agent.example.com"
    assert settings.agent.allowed_jids == ("*",)
    assert settings.backend == "asyncio"
    assert settings.policy.rules[0].allowed_jids == ()


def test_the_process_environment_is_read_unless_another_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "agent.toml"
    path.write_text(SMALLEST)
    monkeypatch.setenv("AGENT_SECRET", "s")
    monkeypatch.setenv("XMPP_AGENT_SERVER__PORT", "1234")
    assert load(path).server.port == 1234


def test_settings_made_in_code_read_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XMPP_AGENT_BACKEND", "asyncio")
    server = Server(component_domain="agent.localhost", component_secret="s")
    assert make_settings(server=server).backend == "trio"


def test_the_env_file_beside_counts_as_environment_but_comes_after_it(
    read: Any, tmp_path: Path
) -> None:
    (tmp_path / "agent.env").write_text("AGENT_SECRET=beside\nXMPP_AGENT_SERVER__PORT=1234\n")
    (tmp_path / "agent.toml").write_text(SMALLEST)
    settings = load(tmp_path / "agent.toml", {})
    assert settings.server.component_secret.get_secret_value() == "beside"
    assert settings.server.port == 1234
    assert read(SMALLEST).server.component_secret.get_secret_value() == "geheim"


def test_a_line_beside_that_sets_nothing_is_told_without_showing_it(
    problems: Any, tmp_path: Path
) -> None:
    (tmp_path / "agent.env").write_text("# a secret\nAGENT_SECRET hush\nOTHER='hush\n")
    what = "is not a setting: write NAME=value, and close each quotation mark"
    assert problems(SMALLEST) == [f"agent.env, line {line}: {what}" for line in (2, 3)]


def test_numbers_and_flags_can_come_from_variables(read: Any) -> None:
    settings = read(SMALLEST + 'port = "${PORT}"\ntls = "${TLS:-true}"\n', PORT="5347")
    assert (settings.server.port, settings.server.tls) == (5347, True)


def test_the_configuration_of_the_seed_is_accepted_with_one_notice(read: Any) -> None:
    settings = read(
        SMALLEST
        + """\
[llm]
provider = "anthropic"
model = "claude-sonnet-4-5-20250929"
api_key = "${ANTHROPIC_API_KEY}"
max_tokens_per_request = 4096
[memory]
backend = "markdown"
path = "./data/memory"
[session]
idle_timeout_mins = 240
[[rooms]]
jid = "lobby@conference.localhost"
[skills]
web_search = {key = "sk-1"}
modules = ["mine"]
""",
        ANTHROPIC_API_KEY="sk-2",
    )
    assert settings.later == ("skills.web_search",)
    assert settings.notice == "not supported by this release and ignored: skills.web_search"
    assert settings.llm is not None
    assert settings.llm.api_key.get_secret_value() == "sk-2"
    assert "sk-2" not in repr(settings)
    assert settings.skills.modules == ("mine",)
    assert "sk-1" not in repr(settings)


def test_every_problem_is_told_at_once_with_line_key_and_mend(problems: Any) -> None:
    assert problems(
        """\
backnd = "trio"
[server]
port = 99999
hots = "x"
component_domain = "agent"
keepalive_s = true
tls_ca = "ca.pem"
[agent]
allowed_jids = "a@b"
allowed_domains = ["a", 5]
[[policy.rules]]
skills = []
[[policy.rules]]
skills = ["x"]
[limits]
requests_total = 3
[log]
format = "xml"
"""
    ) == [
        "agent.toml, line 1: backnd is not a setting; did you mean backend?",
        (
            "agent.toml, line 2: server.component_secret is missing: add component_secret = "
            '"${AGENT_SECRET}" under [server]'
        ),
        "agent.toml, line 3: server.port must be at most 65535, and is 99999",
        "agent.toml, line 4: server.hots is not a setting; did you mean server.host?",
        "agent.toml, line 6: server.keepalive_s must be a number, and is true or false",
        (
            "agent.toml, line 7: server.tls_ca has no effect while server.tls is false: set tls = "
            "true or remove it"
        ),
        'agent.toml, line 9: agent.allowed_jids must be a list, such as ["admin@example.com"]',
        "agent.toml, line 10: agent.allowed_domains[1] must be a string, in quotes",
        "agent.toml, line 12: policy.rules[0].skills is empty",
        (
            "agent.toml, line 13: policy.rules[1] restricts nothing: add allowed_jids, "
            "allowed_domains, confirm or approvers, or remove it"
        ),
        (
            "agent.toml, line 16: limits.requests_total must not be smaller than "
            "limits.requests_per_principal"
        ),
        "agent.toml, line 18: log.format must be 'auto', 'human' or 'json'",
    ]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("server = 5", "line 1: server must be a table: [server]"),
        (
            SMALLEST + '[[policy.rules]]\nskills = ["x"]\napprovers = ["a@b"]\nneed = 2',
            "need = 2 can never be reached, because approvers names 1: name more accounts",
        ),
        (
            SMALLEST + '[[policy.rules]]\nskills = ["x"]\napprovers = ["a@b"]\nhat = "urn:x"',
            "affiliation and hat are about the occupants of a room: add the room to approvers",
        ),
        (
            SMALLEST + '[[policy.rules]]\nskills = ["x"]\nconfirm = "always"\nneed = 2',
            "need and not_requester are about approvers: add them to the same rule",
        ),
        (
            SMALLEST + '[[policy.rules]]\nskills = ["x"]\napprovers = ["a@b"]\nneed = 0',
            "need must be at least 1",
        ),
        (SMALLEST + "[policy]\nrules = 5", "rules must be a list of tables, each under [[policy"),
        (SMALLEST + "[policy.rules]\na = 1", "must be a list of tables, each under [[policy.rule"),
        (SMALLEST + "[skills]\nmodules = 5", "skills.modules must be a list"),
        (SMALLEST + "skills = 5", "server.skills is not a setting; did you mean skills?"),
        (SMALLEST + "[log]\nport = 5", "log.port is not a setting; did you mean server.port?"),
        (SMALLEST + "[log]\nx = 5", "log.x is not a setting; known here: level, format"),
        (SMALLEST + "read_timeout_s = inf", "server.read_timeout_s must be a finite number"),
        (SMALLEST + "read_timeout_s = 0", "server.read_timeout_s must be greater than 0, and is 0"),
        (SMALLEST + "reconnect_min_s = 99", "max_s must not be smaller than server.reconnect_min"),
        (SMALLEST + "port = 1.5", "server.port must be a whole number"),
        (SMALLEST + 'tls = "maybe"', "server.tls must be true or false"),
        (SMALLEST + "tls_verify = false", "tls_verify has no effect while server.tls is false"),
        (SMALLEST + 'host = ""', "server.host is empty"),
        (SMALLEST + 'host = "${H"', "line 4: server.host has a ${ that is not a variable: write"),
        (SMALLEST.replace("agent.ex", "me@agent.ex"), "must be a domain such as agent.example.com"),
        (
            SMALLEST.replace("agent.example.com", "agent"),
            "agent.allowed_domains is needed, because",
        ),
        (
            "[server]\n[agent.x]\n[agent.x]\n",
            "agent.toml, line 3: [agent.x] is repeated here: put its keys below the first [ag",
        ),
        (
            "[server]\nhost = x",
            "agent.toml, line 2: is not valid TOML: Invalid value; text must be",
        ),
    ],
)
def test_each_mistake_has_its_sentence(problems: Any, text: str, sentence: str) -> None:
    found = problems(text)
    assert len(found) == 1 or text == "server = 5"
    assert sentence in found[0]


def test_a_missing_variable_says_where_to_set_it(tmp_path: Path) -> None:
    path = tmp_path / "agent.toml"
    path.write_text(SMALLEST)
    with pytest.raises(SettingsError) as caught:
        load(path, {})
    assert str(caught.value) == (
        f"{path}, line 3: server.component_secret uses ${{AGENT_SECRET}}, which is not set; "
        f"export it, or set it in {tmp_path}/agent.env"
    )
    # What the environment sets itself need not be expandable.
    assert load(path, {"XMPP_AGENT_SERVER__COMPONENT_SECRET": "x"})


def test_mistakes_in_the_environment_name_the_variable(problems: Any) -> None:
    assert problems(
        SMALLEST,
        XMPP_AGENT_SERVER__PORT="abc",
        XMPP_AGENT_SERVER__HSOT="x",
        XMPP_AGENT_SERVR__HOST="x",
        XMPP_AGENT_AGENT__ALLOWED_JIDS="a@example.com",
        XMPP_AGENT_POLICY="[",
    ) == [
        "environment: XMPP_AGENT_SERVR__HOST is not a setting; did you mean server?",
        "environment: XMPP_AGENT_SERVER__PORT must be a whole number",
        "environment: XMPP_AGENT_SERVER__HSOT is not a setting; did you mean server.host?",
        'environment: XMPP_AGENT_AGENT__ALLOWED_JIDS must be a list, such as ["admin@example.com"]',
        "environment: XMPP_AGENT_POLICY must be a table: [policy]",
    ]


def test_variables_that_a_container_platform_sets_are_left_alone(read: Any) -> None:
    assert read(SMALLEST, XMPP_AGENT_PORT="tcp://10.0.0.1:80", XMPP_AGENT_SERVICE_HOST="10.0.0.1")


def test_a_file_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    for make, sentence in [
        (lambda path: None, "does not exist; `xmpp-agent init` creates it"),
        (lambda path: path.mkdir(), "cannot be read: Is a directory"),
        (lambda path: path.write_bytes(b"\xff"), "is not UTF-8 text"),
    ]:
        path = tmp_path / f"{len(sentence)}.toml"
        make(path)
        with pytest.raises(SettingsError, match=sentence):
            load(path, {})


def test_a_byte_order_mark_does_no_harm(read: Any) -> None:
    assert read("\ufeff" + SMALLEST)


secrets = st.text(alphabet="abcdefgh", min_size=12)


@given(secret=secrets, mistake=st.sampled_from(["port", "tls", "mode", "keepalive_s", "nokey"]))
def test_no_repr_and_no_error_shows_a_secret(
    tmp_path_factory: pytest.TempPathFactory, secret: str, mistake: str
) -> None:
    path = tmp_path_factory.mktemp("s") / "agent.toml"
    path.write_text(SMALLEST)
    settings = load(path, {"AGENT_SECRET": secret})
    assert secret not in f"{settings!r} {settings} {settings.server!r}"

    path.write_text(SMALLEST.replace("component_secret", mistake))
    with pytest.raises(SettingsError) as caught:
        load(path, {"AGENT_SECRET": secret})
    assert secret not in f"{caught.value!r}"

    with pytest.raises(ValidationError) as raw:
        Settings.model_validate({"server": {mistake: secret}})
    assert secret not in str(raw.value)
    with pytest.raises(ValidationError) as raw:
        Server.model_validate({mistake: secret})
    assert secret not in str(raw.value)


def test_a_secret_that_is_a_number_is_not_shown_either(problems: Any) -> None:
    (only,) = problems('[server]\ncomponent_domain = "a.b"\ncomponent_secret = 12345678\n')
    assert "12345678" not in only
    assert "must be a string" in only


def test_an_empty_secret_is_refused(problems: Any) -> None:
    assert "server.component_secret is missing" in problems(SMALLEST, AGENT_SECRET="")[0]


_shown = st.text(min_size=1).filter(lambda text: text.isprintable() and "<" not in text)


@given(name=_shown, port=st.integers(1, 65535))
def test_what_is_written_as_toml_loads_as_itself(
    tmp_path_factory: pytest.TempPathFactory, name: str, port: int
) -> None:
    path = tmp_path_factory.mktemp("s") / "agent.toml"
    written = name.replace("${", "$${")
    path.write_text(f"{SMALLEST}port = {port}\n[agent]\nname = {toml(written)}\n", encoding="utf-8")
    settings = load(path, ENVIRON)
    assert (settings.agent.name, settings.server.port) == (name, port)


def test_every_key_is_documented_and_has_a_default_or_an_example() -> None:
    needed = {
        "of",
        "to",
        "then",
        "skills",
        "provider",
        "name",
        "secret",
        "principal",
    }
    needed |= {"when", "principal", "skill"}  # of schedules, and of those that skills bring
    needed |= {"issuer", "client_id", "client_secret"}  # of the accounts at MCP servers
    needed |= {"jid", "allowed", "members"}  # of restrictions of personas, of shared memories
    needed |= {"principal", "when", "service", "node"}  # of schedules and watches
    needed |= {"json_schema"}  # of types of objects
    needed |= {"value", "hosts"}  # of credentials
    needed |= {"description", "url", "recipients", "host", "sender", "token"}
    needed |= {"repositories", "database"}  # of skills that reach outside, of queues
    for table in tables():
        assert table.description or not table.name
        assert table.keys or table.like
        for key in table.keys:
            assert key.description.endswith("."), key
            assert key.default is not None or key.example is not None, key
            if (table.name, key.name) != ("server", "jid"):  # needed by clients alone
                assert key.required == (key.default is None and key.name in needed), key
            if not table.repeated:
                path = tuple(filter(None, (*table.name.split("."), key.name)))
                assert key.variable == env_name(path)


@pytest.mark.skipif(sys.platform == "win32", reason="imports are measured on POSIX")
def test_settings_import_nothing_heavy() -> None:
    import subprocess

    code = "import sys, component.config; print(*{m.partition('.')[0] for m in sys.modules})"
    loaded = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60
    ).stdout.split()
    heavy = {"rich", "trio", "anyio", "click", "structlog", "msgspec", "xep"}
    assert not heavy & set(loaded)


def test_the_database_is_a_secret_and_may_be_empty(read: Any) -> None:
    text = SMALLEST + '[storage]\npostgres = "${AGENT_DATABASE:-}"\n'
    assert read(text).storage.postgres.get_secret_value() == ""
    url = "postgresql://agent:geheim@db.example/agent"
    settings = read(text, AGENT_DATABASE=url)
    assert settings.storage.postgres.get_secret_value() == url
    assert "geheim" not in repr(settings)


@pytest.mark.parametrize(
    "domain", ["my_agent.example.com", "agent..example.com", "x" * 64 + ".example", "-a.example"]
)
def test_a_component_domain_that_no_address_can_have_is_refused_in_a_sentence(
    read: Any, domain: str
) -> None:
    with pytest.raises(SettingsError, match=r"component_domain is not a domain: The domainpart"):
        read(f'[server]\ncomponent_domain = "{domain}"\ncomponent_secret = "s"\n')


@pytest.mark.parametrize(
    "domain", ["agent.example", "agent.xn--kln-sna.example", "agent.köln.example"]
)
def test_a_component_domain_may_be_internationalised(read: Any, domain: str) -> None:
    settings = read(f'[server]\ncomponent_domain = "{domain}"\ncomponent_secret = "s"\n')
    assert settings.server.address == domain


@pytest.mark.parametrize(
    ("written", "domain"),
    [
        ("Agent.Example.COM", "agent.example.com"),
        ("agent.example.com.", "agent.example.com"),
        ("agent.XN--KLN-SNA.example", "agent.xn--kln-sna.example"),
        ("agent.KÖLN.example.", "agent.köln.example"),
    ],
)
def test_our_own_domain_is_written_as_servers_write_it(
    read: Any, written: str, domain: str
) -> None:
    component = f'[server]\ncomponent_domain = "{written}"\ncomponent_secret = "s"\n'
    assert read(component).server.address == domain
    client = f'[server]\nmode = "client"\njid = "Helper@{written}"\npassword = "s"\n'
    assert read(client).server.address == f"helper@{domain}"


@pytest.mark.parametrize("host", ["[::1]", "::1"])
def test_an_ipv6_address_may_have_brackets(read: Any, host: str) -> None:
    section = f'[server]\nhost = "{host}"\ncomponent_domain = "a.b"\ncomponent_secret = "s"\n'
    section += f'[http]\nhost = "{host}"\n'
    section += f'[email_send]\nhost = "{host}"\nsender = "a@a.b"\nrecipients = ["b@a.b"]\n'
    settings = read(section)
    assert settings.server.host == settings.http.host == settings.email_send.host == "::1"
