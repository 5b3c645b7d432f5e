"""`web_search` speaks the APIs of its services, here those of servers on real sockets."""

from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from component.features.builtins.settings import WebSearch
from component.features.builtins.web_search import found_in, web_search_skill
from component.skills import SkillError
from component.skills.errors import SkillUnavailable
from tests.component.skill_calls import called, data_of, text_of
from tests.component.web_server import Request, Response, as_json, serving

pytestmark = pytest.mark.anyio

KEY = "a-key"


def settings(provider: str, url: str, **more: Any) -> WebSearch:
    return WebSearch(provider=provider, base_url=url, api_key=KEY, **more)  # type: ignore[arg-type]


def tavily(request: Request) -> Response:
    """As https://docs.tavily.com/documentation/api-reference/endpoint/search."""
    if request.headers.get("authorization") != f"Bearer {KEY}":
        return as_json({"detail": {"error": "Unauthorized: missing or invalid API key."}}, 401)
    assert (request.method, request.path) == ("POST", "/search")
    return as_json(
        {
            "query": request.json["query"],
            "answer": None,
            "images": [],
            "results": [
                {
                    "title": f"Prosody {number}",
                    "url": f"https://prosody.im/{number}",
                    "content": "Prosody  is a\nmodern XMPP server.",
                    "score": 0.9,
                    "raw_content": None,
                }
                for number in range(request.json["max_results"])
            ],
            "response_time": 1.2,
        }
    )


def perplexity(request: Request) -> Response:
    """As https://docs.perplexity.ai/api-reference/search-post."""
    if request.headers.get("authorization") != f"Bearer {KEY}":
        return as_json({"error": {"message": "Invalid API key", "code": 401}}, 401)
    assert (request.method, request.path) == ("POST", "/search")
    return as_json(
        {
            "id": "e38104d5",
            "results": [
                {
                    "title": "Prosody",
                    "url": "https://prosody.im/",
                    "snippet": "A modern XMPP server.",
                    "date": "2026-03-20",
                    "last_updated": "2026-09-19",
                }
            ],
        }
    )


def searxng(request: Request) -> Response:
    """As https://docs.searxng.org/dev/search_api.html."""
    values = parse_qs(urlsplit(request.path).query)
    if values["format"] != ["json"]:
        return Response(b"Forbidden", 403)
    return as_json(
        {
            "query": values["q"][0],
            "number_of_results": 0,
            "results": [
                {
                    "url": "https://prosody.im/",
                    "title": "Prosody",
                    "content": "A modern XMPP server.",
                    "publishedDate": None,
                    "engine": "duckduckgo",
                }
            ],
            "answers": [],
            "unresponsive_engines": [["google", "timeout"]],
        }
    )


async def test_tavily_is_asked_and_its_results_are_listed() -> None:
    async with serving(tavily) as server:
        skill = web_search_skill(settings("tavily", server.url))
        asked = {"query": "xmpp server", "results": 2, "period": "week", "sites": ["prosody.im"]}
        result = await called(skill, asked)
    assert text_of(result) == (
        "1. Prosody 0\nhttps://prosody.im/0\nProsody is a modern XMPP server.\n\n"
        "2. Prosody 1\nhttps://prosody.im/1\nProsody is a modern XMPP server."
    )
    assert server.requests[0].json == {
        "query": "xmpp server",
        "max_results": 2,
        "search_depth": "basic",
        "time_range": "week",
        "include_domains": ["prosody.im"],
    }


async def test_perplexity_is_asked_and_its_results_are_listed() -> None:
    async with serving(perplexity) as server:
        skill = web_search_skill(settings("perplexity", server.url))
        result = await called(skill, {"query": "xmpp", "period": "day", "sites": ["prosody.im"]})
    assert data_of(result) == [
        {
            "title": "Prosody",
            "url": "https://prosody.im/",
            "extract": "A modern XMPP server.",
            "date": "2026-03-20",
        }
    ]
    body = server.requests[0].json
    assert (body["search_recency_filter"], body["search_domain_filter"]) == ("day", ["prosody.im"])


async def test_searxng_is_asked_and_its_results_are_listed() -> None:
    async with serving(searxng) as server:
        skill = web_search_skill(settings("searxng", server.url))
        asked = {"query": "a & b", "period": "month", "sites": ["prosody.im"]}
        result = await called(skill, asked)
    assert text_of(result).startswith("1. Prosody\nhttps://prosody.im/")
    values = parse_qs(urlsplit(server.requests[0].path).query)
    assert values["q"] == ["a & b (site:prosody.im)"]
    assert values["time_range"] == ["month"]


async def test_a_wrong_key_is_told_and_not_shown() -> None:
    async with serving(lambda _: as_json({"detail": "no"}, 401)) as server:
        result = await called(web_search_skill(settings("tavily", server.url)), {"query": "x"})
    assert result.is_error
    assert "the credentials that are configured" in text_of(result)
    assert f"Bearer {KEY}" not in text_of(result)


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_service_that_fails_is_a_failure_that_may_be_repeated(status: int) -> None:
    async with serving(lambda _: as_json({}, status)) as server:
        with pytest.raises(SkillUnavailable) as failure:
            await called(web_search_skill(settings("tavily", server.url)), {"query": "x"})
    assert not failure.value.begun


@pytest.mark.parametrize("body", [b"<html>", b"[" * 100_000, b'{"results": 7}', b"null"])
async def test_an_answer_that_is_no_result(body: bytes) -> None:
    async with serving(lambda _: Response(body)) as server:
        result = await called(web_search_skill(settings("tavily", server.url)), {"query": "x"})
    assert result.is_error


def test_what_is_needed_is_told() -> None:
    with pytest.raises(ValidationError, match="is needed for tavily"):
        WebSearch(provider="tavily")
    with pytest.raises(ValidationError, match="URL of your SearXNG"):
        WebSearch(provider="searxng")


def test_web_search_declares_its_effects() -> None:
    skill = web_search_skill(WebSearch(provider="tavily", api_key=KEY))  # type: ignore[arg-type]
    assert skill.annotations.read_only
    assert skill.annotations.open_world
    assert skill.taint == "web"
    assert skill.capabilities == ("network:api.tavily.com:443:https",)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
rows = st.dictionaries(st.sampled_from(["title", "url", "content", "snippet", "date"]), values)


@given(values | st.fixed_dictionaries({"results": st.lists(rows)}))
def test_any_json_gives_results_or_an_error(answer: Any) -> None:
    try:
        found = found_in(answer)
    except SkillError:
        return
    assert all(each.url.startswith(("http://", "https://")) for each in found)
    assert all(len(each.extract) <= 1000 and "\n" not in each.extract for each in found)
