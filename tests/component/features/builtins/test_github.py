"""The skills about GitHub speak its API, here that of a server on a real socket."""

from typing import Any

import pytest

from component.features.builtins.github import github_skills
from component.features.builtins.settings import GitHub
from component.skills import InvalidParam, Skill
from component.skills.errors import SkillUnavailable
from tests.component.skill_calls import called, data_of, text_of
from tests.component.web_server import Request, Response, as_json, serving

pytestmark = pytest.mark.anyio

GARDEN = {"repository": "example/garden"}


def issue(number: int, **more: Any) -> dict[str, Any]:
    return {
        "number": number,
        "title": "Water the  roses",
        "state": "open",
        "user": {"login": "juliet"},
        "html_url": f"https://github.com/example/garden/issues/{number}",
        "labels": [{"name": "urgent"}],
        "body": "They are\r\ndry.",
    } | more


def github(request: Request) -> Response:
    if request.headers.get("authorization") != "Bearer token":
        return as_json({"message": "Bad credentials"}, 401)
    path, _, query = request.path.partition("?")
    match request.method, path.removeprefix("/repos/example/garden/"):
        case "GET", "issues":
            assert "state=open" in query
            return as_json([issue(7), issue(8, pull_request={"url": "x"}), issue(9, body=None)])
        case "GET", "pulls":
            return as_json([issue(8, user=None, labels=None)])
        case "POST", "issues":
            assert request.json == {"title": "Weeds", "body": "Many.", "labels": ["garden"]}
            return as_json(issue(10), 201)
        case "POST", "issues/7/comments":
            assert request.json == {"body": "Done."}
            return as_json({"id": 1, "html_url": "https://github.com/c/1"}, 201)
    return as_json({"message": "Not Found"}, 404)


def skills(url: str, token: str = "token") -> dict[str, Skill]:
    settings = GitHub(token=token, repositories=("Example/*",), base_url=url)  # type: ignore[arg-type]
    return {each.name: each for each in github_skills(settings)}


async def test_issues_and_pull_requests_are_listed() -> None:
    async with serving(github) as server:
        use = skills(server.url)
        found = await called(use["github_issues"], GARDEN)
        pulls = await called(use["github_pull_requests"], GARDEN | {"limit": 1})
    assert text_of(found) == (
        "#7 Water the roses (open, by juliet, urgent)\nThey are dry.\n\n"
        "#9 Water the roses (open, by juliet, urgent)"
    )
    assert [each["number"] for each in data_of(pulls)] == [8]


async def test_an_issue_and_a_comment_are_created() -> None:
    async with serving(github) as server:
        use = skills(server.url)
        asked = GARDEN | {"title": "Weeds", "text": "Many.", "labels": ["garden"]}
        made = await called(use["github_issue_create"], asked)
        assert text_of(made) == "Created issue 10: https://github.com/example/garden/issues/10"
        said = await called(use["github_comment"], GARDEN | {"number": 7, "text": "Done."})
        assert text_of(said) == "Commented on example/garden 7: https://github.com/c/1"


async def test_only_repositories_of_the_settings_are_used() -> None:
    async with serving(github) as server:
        use = skills(server.url)
        other = await called(use["github_issues"], {"repository": "evil/garden"})
        assert "not permitted" in text_of(other)
        for wrong in ("example/..", "example/a/b", "example/../x", "example/a?b", "example/."):
            with pytest.raises(InvalidParam):
                await called(use["github_issues"], {"repository": wrong})
    assert server.requests == []


async def test_failures_are_told_and_writing_is_not_repeated() -> None:
    async with serving(github) as server:
        refused = await called(skills(server.url, "wrong")["github_issues"], GARDEN)
        assert "credentials" in text_of(refused)
        missing = await called(skills(server.url)["github_issues"], {"repository": "example/x"})
        assert "status 404" in text_of(missing)
    async with serving(lambda _: as_json({}, 503, Retry_After="0")) as server:
        use = skills(server.url)
        for name, params, requests in (
            ("github_comment", {"number": 7, "text": "x"}, 1),
            ("github_issues", {}, 3),
        ):
            server.requests.clear()
            with pytest.raises(SkillUnavailable):
                await called(use[name], GARDEN | params)
            assert len(server.requests) == requests


def test_the_github_skills_declare_their_effects() -> None:
    marks = {name: each.annotations for name, each in skills("https://api.github.com").items()}
    reading = {"github_issues", "github_pull_requests"}
    assert {name for name, each in marks.items() if each.read_only} == reading
    assert all(each.destructive for name, each in marks.items() if name not in reading)
    assert all(each.open_world for each in marks.values())
