"""What three agents on three domains do for a person of the first one, over real links.

tests/tools/network.sh .venv/bin/pytest tests/federation/scenarios.py
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from tests.component.models.answers import Text
from tests.component.models.endpoint import in_thread
from tests.federation.federation import BOT, Federation, Gate, block
from tests.servers import command_line
from tests.servers.clients import TIMEOUT, Element, SlixClient
from tests.servers.talk import execute, login, result
from tests.servers.tasking import (
    CONFIRM,
    accepted,
    cancel,
    completed,
    decision,
    ended,
    refusal,
    say,
)
from xep.fluux_agent.delegation import NAMESPACE as DELEGATION

pytestmark = pytest.mark.servers

OUTAGE_S: Final = 120.0
FROZEN_S: Final = 40.0
ASKED: Final = f"{{{CONFIRM}}}confirm"


def ask(romeo: SlixClient, agents: Federation, call: str, **params: str) -> str:
    """Have the first agent ask the second one for a report, which asks the third one."""
    given = json.dumps({"call": f"archive.{call}", "params": params})
    return accepted(romeo.iq(agents.a.address, execute("research.report", json=given), "set"))


def hear(romeo: SlixClient, agents: Federation, words: str) -> Element:
    """Return the next message of the first agent with these words."""
    return romeo.messages.take(
        lambda message: (
            message.get("from") == agents.a.address and words in message.findtext("{*}body", "")
        )
    )


def test_three_agents_do_work_for_a_person(agents: Federation, romeo: SlixClient) -> None:
    task = ask(romeo, agents, "search", words="rivers")
    assert completed(romeo, task) == "Report: Found rivers."


def test_a_question_of_the_last_agent_is_answered_by_the_person_in_her_own_words(
    agents: Federation, romeo: SlixClient
) -> None:
    say(romeo, agents.a.address, "/run research.report call=archive.choose params={}")
    hear(romeo, agents, "Of which year?")
    say(romeo, agents.a.address, "1597")
    hear(romeo, agents, "Report: That of 1597.")


@pytest.mark.thorough
def test_doctor_asks_a_peer_what_it_offers(agents: Federation) -> None:
    service = agents.a.service
    service.stop()
    _, checks = command_line.doctor(service.directory, service.secret)
    text = "agent.b.test answers; skills that it offers to this service: 1"
    assert checks["peer research"] == ("ok", text)
    agents.b.kill()
    _, checks = command_line.doctor(service.directory, service.secret)
    verdict, text = checks["peer research"]
    assert verdict == "warning"
    assert "agent.b.test cannot be reached" in text


@pytest.mark.thorough
def test_a_bot_of_somebody_else_uses_an_agent_of_another_domain(
    agents: Federation, tmp_path: Path
) -> None:
    program = tmp_path / "bot.py"
    program.write_text(block("bot.py"))
    server = agents.a.server
    given = {"PASSWORD": server.accounts[BOT], "SSL_CERT_FILE": str(server.ca_file)}
    done = subprocess.run(
        [sys.executable, str(program)],
        env=os.environ | given,
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT,
    )
    assert done.stdout == "Sources about rivers.\n", done.stderr


@pytest.mark.thorough
def test_who_is_no_peer_cannot_use_an_agent_of_another_domain(
    agents: Federation, romeo: SlixClient
) -> None:
    answer = romeo.iq(agents.b.address, execute("sources", topic="rivers"), "set")
    assert refusal(answer) == ("service-unavailable", "")


@pytest.mark.thorough
@pytest.mark.parametrize("address", ["agent.b.test", "assistant@agent.b.test"])
def test_an_agent_refuses_work_whose_path_leads_through_itself(
    agents: Federation, address: str
) -> None:
    path = (
        f"<delegation xmlns='{DELEGATION}' origin='romeo@a.test' max-hops='4'>"
        f"<via>{address}</via><via>newsbot@a.test</via></delegation>"
    )
    request = execute("sources", topic="rivers").replace("</execute>", f"{path}</execute>")
    with login(agents.a.server, BOT) as bot:
        assert refusal(bot.iq(agents.b.address, request, "set"))[1] == "loop"


@pytest.mark.thorough
def test_the_last_agent_deletes_when_the_person_has_approved_it_once(
    agents: Federation, romeo: SlixClient
) -> None:
    task = ask(romeo, agents, "delete", file="rivers.txt")
    asked = romeo.messages.take(lambda message: message.find(ASKED) is not None)
    confirm = asked.find(ASKED)
    assert confirm is not None
    assert "rivers.txt" in asked.findtext("{*}body", "")
    assert agents.c.effects("rivers.txt") == []
    decided = decision(confirm.attrib["id"], "approve")
    assert romeo.iq(agents.a.address, decided, "set").get("type") == "result"
    assert completed(romeo, task) == "Report: rivers.txt is gone."
    assert agents.c.effects("rivers.txt") == ["deleted rivers.txt"]


_ORIGINS: Final = 'origins = ["b.test", "a.test"]'
DEMANDS: Final = (_ORIGINS, f'{_ORIGINS}\nrequires = "grant"\nasks_back = "always"')
"""What the last agent says of the second one, which needs grants then."""


@pytest.mark.thorough
def test_a_budget_that_is_spent_half_way_ends_the_work_and_is_settled(
    agents: Federation, romeo: SlixClient
) -> None:
    limit = ('read_only = ["report"]', 'read_only = ["report"]\ncall_usd = 0.5')
    with in_thread() as model, ExitStack() as stack:
        model.otherwise = Text('{"said": "It is long."}')
        llm = (
            '[llm]\nprovider = "openai"\nmodel = "scripted"\napi_key = "sk-scripted"\n'
            f'base_url = "{model.url}"\nusd_per_million_in = 100\nusd_per_million_out = 1000\n'
        )
        stack.enter_context(agents.c.changed(DEMANDS, more=llm))
        stack.enter_context(agents.b.changed(('"search", ', '"search", "read", ')))
        stack.enter_context(agents.a.changed(limit))
        task = ask(romeo, agents, "read", books="500")
        done = ended(romeo, task)[1].findtext(".//{*}output", "")
        read = len(model.requests)
        assert 0 < read < 500
        assert f"Until then: read {read} of 500 books." in done
        assert done.endswith("It is possible with a larger budget.")
        service = agents.a.service
        words = ("audit", "trace", task)
        drawn = command_line.run(service.directory, *words, secret=service.secret).output
        assert re.search(r"agent\.c\.test read .*: failed.* 0\.4[0-9]* USD", drawn), drawn


@pytest.mark.thorough
def test_a_grant_that_was_revoked_meanwhile_is_refused_and_the_person_is_told(
    agents: Federation, romeo: SlixClient
) -> None:
    with ExitStack() as stack:
        stack.enter_context(agents.c.changed(DEMANDS))
        offers = ('offers = ["report"]', 'offers = ["report*"]\nrequires = "grant"')
        stack.enter_context(agents.b.changed(offers))
        stack.enter_context(agents.a.changed(('["report"]', '["report*"]')))
        agents.a.service.wait_log("a peer offers skills")
        params = json.dumps({"words": "rivers"}, separators=(",", ":"))
        say(
            romeo,
            agents.a.address,
            f"/run research.report_later call=archive.search params={params}",
        )
        hear(romeo, agents, "Shall I go on?")
        say(romeo, agents.a.address, "/grants list")
        listed = hear(romeo, agents, "may use report_later").findtext("{*}body", "")
        (grant,) = re.findall(r"^(\w+) active: ", listed, re.MULTILINE)
        say(romeo, agents.a.address, f"/grants revoke {grant} keep")
        hear(romeo, agents, "What has begun continues")
        say(romeo, agents.a.address, "yes")
        hear(romeo, agents, "says that the grant is revoked")


@pytest.mark.thorough
def test_cancelling_at_the_first_agent_stops_the_last_one(
    agents: Federation, romeo: SlixClient, gate: Gate
) -> None:
    task = ask(romeo, agents, "collect", label="cancelled")
    with gate.arrival("cancelled") as waiting:
        result(romeo.iq(agents.a.address, cancel(task), "set"))
        assert waiting.recv(1) == b""
    _, found = ended(romeo, task)
    assert found.get("state") == "cancelled"
    assert agents.c.effects("cancelled") == ["cancelled first"]


@pytest.mark.thorough
def test_the_first_of_several_answers_stops_the_other_work_at_the_last_agent(
    agents: Federation, romeo: SlixClient, gate: Gate
) -> None:
    given = json.dumps({"call": "archive.choose", "params": {}, "beside": "slower"})
    call = {"skill": "research.report", "params": json.loads(given)}
    whole = json.dumps({"calls": [call], "how": "first-good"})
    task = accepted(romeo.iq(agents.a.address, execute("peers_ask", json=whole), "set"))
    with gate.arrival("slower") as waiting:
        hear(romeo, agents, "Of which year?")
        say(romeo, agents.a.address, "1597")
        assert waiting.recv(1) == b""
    assert "research.report:\nReport: That of 1597." in completed(romeo, task)
    assert agents.c.effects("slower") == ["slower first"]


@pytest.mark.thorough
@pytest.mark.parametrize("killed", ["a", "b", "c", "abc"])
def test_killed_agents_finish_the_work_and_nothing_is_done_twice(
    agents: Federation, romeo: SlixClient, gate: Gate, killed: str
) -> None:
    label = f"killed-{killed}"
    task = ask(romeo, agents, "collect", label=label)
    waiting = gate.arrival(label)
    for name in killed:
        agents[name].kill()
    for name in killed:
        agents[name].start()
    if "c" in killed:
        waiting.close()
        waiting = gate.arrival(label)
    with waiting:
        waiting.sendall(b"go")
        assert completed(romeo, task) == f"Report: {label} is complete."
    assert agents.c.effects(label) == [f"{label} first", f"{label} second"]


@pytest.mark.thorough
@pytest.mark.parametrize("killed", ["a", "b"])
def test_a_question_reaches_the_person_although_an_agent_was_down_when_it_was_asked(
    agents: Federation, romeo: SlixClient, gate: Gate, killed: str
) -> None:
    label = f"question-{killed}"
    params = json.dumps({"label": label}, separators=(",", ":"))
    say(romeo, agents.a.address, f"/run research.report call=archive.choose params={params}")
    with gate.arrival(label) as waiting:
        agents[killed].kill()
        waiting.sendall(b"go")
        assert waiting.recv(1) == b""
    agents[killed].start()
    hear(romeo, agents, "Of which year?")
    say(romeo, agents.a.address, "1599")
    hear(romeo, agents, "Report: That of 1599.")


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["b", "c"])
def test_work_that_ends_while_its_server_is_down_is_reported(
    agents: Federation, romeo: SlixClient, gate: Gate, name: str
) -> None:
    label = f"server-{name}"
    task = ask(romeo, agents, "collect", label=label)
    with gate.arrival(label) as waiting:
        agents[name].server.kill()
        waiting.sendall(b"go")
        assert waiting.recv(1) == b""
    agents[name].server.start()
    assert completed(romeo, task) == f"Report: {label} is complete."
    assert agents.c.effects(label) == [f"{label} first", f"{label} second"]


@pytest.mark.thorough
def test_a_server_that_stands_still_for_a_while_delays_work(
    agents: Federation, romeo: SlixClient
) -> None:
    server = agents.b.server.pid
    os.kill(server, signal.SIGSTOP)
    try:
        task = ask(romeo, agents, "search", words="lakes")
        time.sleep(FROZEN_S)
    finally:
        os.kill(server, signal.SIGCONT)
    assert completed(romeo, task) == "Report: Found lakes."


@pytest.mark.thorough
def test_a_cut_of_all_links_for_two_minutes_delays_work_and_loses_none(
    agents: Federation, romeo: SlixClient, gate: Gate
) -> None:
    before = ask(romeo, agents, "collect", label="before")
    waiting = gate.arrival("before")
    agents.cut()
    with waiting:
        waiting.sendall(b"go")
        assert waiting.recv(1) == b""  # it ends while nobody can hear of it
    meanwhile = ask(romeo, agents, "collect", label="meanwhile")
    time.sleep(OUTAGE_S)  # how long it takes is what this is about
    agents.join()
    with gate.arrival("meanwhile") as waiting:
        waiting.sendall(b"go")
        assert completed(romeo, before) == "Report: before is complete."
        assert completed(romeo, meanwhile) == "Report: meanwhile is complete."
    for label in ("before", "meanwhile"):
        assert agents.c.effects(label) == [f"{label} first", f"{label} second"]
