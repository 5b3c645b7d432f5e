"""What a conversation leaves in record, figures and traces: all of it, and none of its words."""

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from component.audit.files import files_in
from tests.component.metrics.test_traces import attributes, collecting
from tests.component.models.endpoint import Calls, Text
from tests.servers.base import PortLease, Server
from tests.servers.chatting import Chat, asks, body, chatting, heard, reply, say
from tests.servers.talk import login

pytestmark = [pytest.mark.servers]

Line = dict[str, Any]


def lines(chat: Chat) -> list[Line]:
    files = files_in(chat.agent.directory / "data" / "audit")
    return [json.loads(line) for file in files for line in file.read_bytes().splitlines()]


def test_a_turn_is_in_the_record_from_its_first_line_to_its_last(
    prosody_server: Server, tmp_path: Path
) -> None:
    server, lease = prosody_server, PortLease("127.0.0.1")
    me = {"name": "assistant", "capabilities": ["memory"], "skills": ["memory_*", "wipe"]}
    settings: dict[str, object] = {
        "llm__api_key": "sk-hushed",
        "llm__max_tokens_per_request": 500,
        "budgets__per_principal__tokens": 40_000,
        "agents": [me],
        "metrics__listen": f"127.0.0.1:{lease.port}",
    }
    with (
        collecting() as collector,
        chatting(
            *(server, tmp_path),
            traces__endpoint=f"http://127.0.0.1:{collector.server_port}",
            **settings,
        ) as chat,
        login(server) as juliet,
    ):
        chat.model.answers(
            Calls(("memory_store", {"key": "tea", "body": "Juliet hushed: jasmine."})),
            Calls(("memory_search", {"query": "jasmine"})),
            Calls(("made_up", {"word": "hushed"})),
            Calls(("lookup", {"run": "hushed"})),
            Calls(("wipe", {"disk": "hushed"})),
            Text("All done, hushed.", usage=(39_000, 10)),
        )
        say(juliet, chat.assistant, "Everything about hushed, please.")
        question = heard(juliet, "May I run wipe")
        reply(juliet, chat.assistant, question, "yes")
        assert body(heard(juliet, "All done")) == "All done, hushed."
        assert "budget" in asks(juliet, chat.assistant, "And jasmine?", "budget")
        with urllib.request.urlopen(f"http://127.0.0.1:{lease.port}/metrics") as page:
            text = page.read().decode()
        chat.agent.stop()
        lease.release()
        found = lines(chat)
    who = server.jid("juliet")
    trace = next(line["trace"] for line in found if line["kind"] == "model")
    turn = [line for line in found if line.get("trace") == trace]
    assert {(line["principal"], line["agent"]) for line in turn} == {(who, "assistant")}
    short = [(line["kind"], line["outcome"], line.get("subject")) for line in turn]
    assert [one for one in short if one[0] != "model"] == [
        ("memory", "done", None),  # nothing came to mind yet
        ("capability", "allowed", "memory_store"),
        ("memory", "done", "tea"),
        ("tool-call", "done", "memory_store"),
        ("capability", "allowed", "memory_search"),
        ("memory", "done", None),
        ("tool-call", "done", "memory_search"),
        ("tool-call", "refused", "made_up"),
        ("capability", "refused", "lookup"),
        ("capability", "allowed", "wipe"),
        ("confirmation", "asked", "wipe"),
        ("tool-call", "asked", "wipe"),
        ("confirmation", "approved", "wipe"),
        ("execute", "completed", "wipe"),
        ("tool-call", "done", "wipe"),
    ]
    assert short.count(("model", "done", "scripted")) == 6
    asked = question.find("{urn:fluux:agent:0#confirm}confirm")
    assert asked is not None
    assert {line["detail"] for line in turn if line["kind"] == "confirmation"} == {
        f"question {asked.get('id')}"
    }
    spent = [line for line in found if line["kind"] == "budget"]
    assert {(line["outcome"], line["principal"]) for line in spent} == {
        ("alert", who),
        ("stopped", who),
    }
    (stopped,) = [line for line in spent if line["outcome"] == "stopped"]
    assert stopped["trace"] not in ("", trace)
    kinds = [(line["kind"], line["outcome"]) for line in found]
    assert kinds[1] == ("start", "started")
    assert kinds[-2] == ("start", "stopped")
    _traced(collector.spans, trace)
    written = json.dumps(found) + b"".join(s.SerializeToString() for s in collector.spans).decode(
        errors="replace"
    )
    for secret in ("hushed", "jasmine", server.secret):
        assert secret not in written
        assert secret not in text
    samples = {s.name for f in text_string_to_metric_families(text) for s in f.samples}
    assert {"xmpp_agent_turn_seconds_count", "xmpp_agent_tool_call_seconds_count"} <= samples


def _traced(spans: list[Any], turn: str) -> None:
    """The spans of the turn, as often as it was gone on with, are those of the conventions."""
    whole = [span for span in spans if attributes(span).get("xmpp_agent.turn") == turn]
    assert len(whole) == 2  # before the question and after it
    within = [s for s in spans if s.parent_span_id in {each.span_id for each in whole}]
    tools = [attributes(s)["gen_ai.tool.name"] for s in within if "execute_tool" in s.name]
    assert tools == ["memory_store", "memory_search", "wipe"]
    models = [attributes(span) for span in within if span.name == "chat scripted"]
    assert len(models) == 6
    assert models[-1] == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "scripted",
        "gen_ai.response.model": "scripted",
        "gen_ai.usage.input_tokens": 39_000,
        "gen_ai.usage.output_tokens": 10,
        "gen_ai.usage.cache_read.input_tokens": 0,
        "gen_ai.usage.cache_creation.input_tokens": 0,
        "gen_ai.usage.reasoning.output_tokens": 0,
    }
