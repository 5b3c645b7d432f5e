"""A section of the settings is a skill: a request, an extraction and an output."""

from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from component.config.rest import RestSkill
from component.features.apis.sources import RestSource, rest_skill
from component.http.gate import HttpResponse
from component.rest.answers import ResponseConverter
from component.skills import InvalidParam, Skill, SkillError
from component.skills.errors import DeclarationError, SkillUnavailable
from component.skills.outputs import File
from tests.component.skill_calls import called, data_of, text_of
from tests.component.web_server import Request, Response, as_json, redirect, serving

pytestmark = pytest.mark.anyio

CITY = {"city": {"type": "string", "minLength": 1}}


def entry(**settings: Any) -> RestSkill:
    return RestSkill(description="Return something.", **settings)


def weather(url: str, **settings: Any) -> Skill:
    wanted: dict[str, Any] = {
        "url": f"{url}/cities/{{city}}",
        "parameters": {**CITY, "unit": {"enum": ["C", "F"], "default": "C"}},
        "query": {"unit": "{unit}"},
        "headers": {"X-Key": "secret"},
        "select": "current",
        "output": "It is {temperature} degrees, {wind.speed || 'no'} wind.",
    }
    return rest_skill("weather", entry(**(wanted | settings)))


async def test_a_request_is_made_and_its_answer_is_put_into_words() -> None:
    answer = {"current": {"temperature": 21.5, "wind": None}, "other": [1]}
    async with serving(lambda _: as_json(answer)) as server:
        result = await called(weather(server.url), {"city": "São Paulo"})
    assert text_of(result) == "It is 21.5 degrees, no wind."
    assert data_of(result) == answer["current"]
    request = server.requests[0]
    assert (request.method, request.path) == ("GET", "/cities/S%C3%A3o%20Paulo?unit=C")
    assert request.headers["x-key"] == "secret"


async def test_an_array_is_put_into_a_line_for_each_member() -> None:
    async with serving(lambda _: as_json([{"n": 1}, {"n": 2}, 3])) as server:
        skill = weather(server.url, select="", output="- {n}")
        assert text_of(await called(skill, {"city": "x"})) == "- 1\n- 2\n- "


async def test_other_media_types_are_texts_and_files() -> None:
    answers = [
        Response(b"plain", headers={"Content-Type": "text/plain"}),
        Response(b"\x89PNG", headers={"Content-Type": "image/png"}),
        Response(status=204),
    ]
    async with serving(lambda _: answers.pop(0)) as server:
        skill = weather(server.url, select="", output="")
        found = [await called(skill, {"city": "x"}) for _ in range(3)]
    assert text_of(found[0]) == "plain"
    assert found[1].outputs == (File(b"\x89PNG", "image/png"),)
    assert text_of(found[2]) == "Done (status 204)."


async def test_invalid_arguments_are_refused_before_a_request() -> None:
    async with serving(lambda _: as_json({})) as server:
        for city in ("", "..", "../admin", 7):
            with pytest.raises(InvalidParam):
                await called(weather(server.url), {"city": city})
        with pytest.raises(InvalidParam):
            await called(weather(server.url), {"city": "x", "unknown": 1})
    assert server.requests == []


@pytest.mark.parametrize(
    ("method", "more", "requests"),
    [
        ("GET", {}, 3),
        ("PUT", {}, 3),
        ("DELETE", {}, 3),
        ("POST", {}, 1),
        ("PATCH", {}, 1),
        ("POST", {"annotations": {"idempotent": True}}, 3),
        ("POST", {"annotations": {"read_only": True}}, 3),
        ("GET", {"retries": 0}, 1),
        ("GET", {"annotations": {"read_only": False, "idempotent": False}}, 1),
    ],
)
async def test_only_repeatable_requests_are_repeated(
    method: str, more: dict[str, Any], requests: int
) -> None:
    async with serving(lambda _: as_json({}, 503, Retry_After="0")) as server:
        skill = weather(server.url, method=method, **more)
        with pytest.raises(SkillUnavailable) as failure:
            await called(skill, {"city": "x"})
    assert len(server.requests) == requests
    assert failure.value.begun == (not skill.annotations.repeatable)


async def test_a_repeated_request_succeeds_when_the_server_is_back() -> None:
    answers = [as_json({}, 503, Retry_After="0"), as_json({"current": {"temperature": 1}})]
    async with serving(lambda _: answers.pop(0)) as server:
        assert text_of(await called(weather(server.url), {"city": "x"})).startswith("It is 1 ")


async def test_what_a_server_refuses_for_now_is_sent_again_whatever_its_method() -> None:
    answers = [as_json({}, 429, Retry_After="0"), as_json({}, 429, Retry_After="0"), as_json({})]
    async with serving(lambda _: answers.pop(0)) as server:
        await called(weather(server.url, method="POST"), {"city": "x"})
    assert len(server.requests) == 3
    async with serving(lambda _: as_json({}, 429, Retry_After="0")) as server:
        with pytest.raises(SkillUnavailable, match="refuses further requests") as failure:
            await called(weather(server.url, method="POST"), {"city": "x"})
    assert not failure.value.begun


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ({"ok": False, "error": "not_in_channel"}, "reports an error: not_in_channel."),
        ({"ok": False, "error": {"code": 7}}, 'reports an error: {"code":7}.'),
        ({"ok": False, "error": " too\n\tmany. "}, "reports an error: too many."),
        ({"ok": False, "error": "x" * 2000}, "xxx…."),
        ({"ok": True, "error": "ignored", "current": {}}, ""),
        ({"ok": True, "error": None, "current": {}}, ""),
    ],
)
async def test_an_error_with_the_status_200_is_an_error(answer: object, error: str) -> None:
    async with serving(lambda _: as_json(answer)) as server:
        result = await called(weather(server.url, error="!ok && error"), {"city": "x"})
    assert result.is_error == bool(error)
    assert error in text_of(result)
    assert len(text_of(result)) < 400


async def test_an_error_without_a_reason_is_an_error() -> None:
    async with serving(lambda _: as_json({"failed": True})) as server:
        result = await called(weather(server.url, error="failed"), {"city": "x"})
    assert (result.is_error, text_of(result)) == (True, "127.0.0.1 reports an error.")


async def test_no_redirect_leads_to_another_server_and_secrets_stay() -> None:
    async with serving(lambda _: as_json({})) as other:
        async with serving(lambda _: redirect(f"{other.url}/x", 307)) as server:
            result = await called(weather(server.url), {"city": "x"})
        assert result.is_error
        assert "not permitted" in text_of(result)
        assert other.requests == []


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (as_json({"error": "no such city"}, 404), 'status 404: {"error": "no such city"}'),
        (as_json({}, 401), "credentials"),
        (Response(b"<html>", headers={"Content-Type": "text/html"}), "not JSON"),
        (as_json("x" * 1_000_000), "permitted 999,999 bytes"),
        (Response(b"[" * 2000, headers={"Content-Type": "application/json"}), "not JSON"),
        (as_json([[]] * 200_000), "at most 100000 values"),
    ],
)
async def test_what_goes_wrong_is_told(response: Response, reason: str) -> None:
    async with serving(lambda _: response) as server:
        skill = weather(server.url, max_response_bytes=999_999)
        result = await called(skill, {"city": "x"})
    assert result.is_error
    assert reason in text_of(result)


async def test_a_server_that_is_slow_costs_its_time_only() -> None:
    def answer(request: Request) -> Response:
        return Response(b"{}", wait=anyio.Event())

    async with serving(answer) as server:
        with pytest.raises(SkillUnavailable, match="within"):
            await called(weather(server.url, timeout_s=0.2, retries=0), {"city": "x"})


@pytest.mark.parametrize(
    ("method", "read_only", "destructive", "idempotent"),
    [
        ("GET", True, False, True),
        ("HEAD", True, False, True),
        ("POST", False, True, False),
        ("PUT", False, True, True),
        ("PATCH", False, True, False),
        ("DELETE", False, True, True),
    ],
)
def test_effects_are_those_of_the_method(
    method: str, read_only: bool, destructive: bool, idempotent: bool
) -> None:
    found = weather("https://api.example.com", method=method)
    marks = found.annotations
    assert (marks.read_only, marks.destructive, marks.idempotent, marks.open_world) == (
        read_only,
        destructive,
        idempotent,
        True,
    )
    assert found.taint == "web"
    assert found.capabilities == ("network:api.example.com:443:https",)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"url": "https://{city}.example.com/"}, "before the path"),
        ({"url": "https://example.com/?q={city}"}, "query"),
        ({"url": "https://u:p@example.com/"}, "must have a host"),
        ({"url": "ftp://example.com/"}, "http or https"),
        ({"url": "https://example.com/{town}"}, "parameters has no town"),
        ({"url": "https://example.com/{city"}, "single {"),
        ({"query": {"q": "{town}"}}, "placeholder in query"),
        ({"headers": {"A b": "x"}}, "name of a header"),
        ({"headers": {"A": "x\r\nB: y"}}, "header field cannot have"),
        ({"select": "a["}, "JMESPath"),
        ({"output": "{a[}"}, "JMESPath"),
        ({"body": {"a": "b"}}, "GET request"),
        ({"optional": ["city"], "url": "https://example.com/{city}"}, "the path needs it"),
        ({"annotations": {"read_only": True, "destructive": True}}, "exclude each other"),
    ],
)
def test_mistakes_in_the_settings_are_told(settings: dict[str, Any], reason: str) -> None:
    usual = {"url": "https://example.com/", "parameters": CITY}
    with pytest.raises(ValidationError, match=reason):
        entry(**(usual | settings))


async def test_one_that_cannot_be_declared_does_not_keep_others_away() -> None:
    good = entry(url="https://example.com/")
    bad = entry(url="https://example.com/", parameters={"a": {"type": 7}})
    offers: list[list[str]] = []
    async with anyio.create_task_group() as group:
        source = RestSource({"bad": bad, "good": good})
        await group.start(source.run, lambda skills: offers.append([one.name for one in skills]))
        group.cancel_scope.cancel()
    assert offers == [["good"]]


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)
expressions = st.sampled_from(
    [
        "",
        "a",
        "[].a",
        "length(@)",
        "sort(@)",
        "@[0:2]",
        "*.b | [0]",
        "max_by(@, &a)",
        "join(',', @)",
    ]
)


@given(values, expressions, st.sampled_from(["", "{a}", "x {@} y", "{length(@)}"]))
def test_any_json_gives_a_result_or_an_error(value: Any, select: str, output: str) -> None:
    response = as_json(value)
    got = HttpResponse(200, (("content-type", "application/json"),), response.body, "http://x/")
    try:
        anyio.run(ResponseConverter(select, output).result, got)
    except SkillError:
        return


def test_people_are_asked_in_the_words_of_the_settings() -> None:
    skill = weather("https://api.example.com", question="May I look up {city}[ in {unit}]?")
    assert skill.question == "May I look up {city}[ in {unit}]?"
    with pytest.raises(DeclarationError, match="names 'town', which is not one of its parameters"):
        weather("https://api.example.com", question="May I look up {town}?")
