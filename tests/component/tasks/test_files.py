"""Files and links of results: on the wire they are references, models get the bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.skills import File, Link, Output, SkillResult, skill
from component.skills.outputs import as_result as skill_result
from component.tasks.outputs import part_of, result_of, shared, text_of
from xep.binding import encode, read
from xep.file_sharing import File as FileData
from xep.file_sharing import FileSharing, Sources, UrlData
from xep.fluux_agent.execute import Output as Artifact
from xep.fluux_agent.execute import Result

_KINDS = st.sampled_from(["image/png", "application/pdf", "text/plain", "x/y"])
_NAMES = st.none() | st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=9)


@skill(read_only=True)
def drawn() -> list[Output]:
    """Draw."""
    return []


@given(st.builds(File, st.binary(max_size=99), _KINDS, _NAMES))
def test_a_file_comes_back_from_its_reference(file: File) -> None:
    assert part_of(read(encode(shared(file)), FileSharing)) == file


@given(st.builds(Link, st.sampled_from(["https://a.example/b?c=d#e"]), st.none() | _KINDS, _NAMES))
def test_a_link_comes_back_from_its_reference(link: Link) -> None:
    assert part_of(read(encode(shared(link)), FileSharing)) == link


@given(st.text(max_size=50))
def test_any_url_of_a_peer_is_read_without_a_failure(url: str) -> None:
    for target in (url, f"data:{url}"):
        part_of(FileSharing(file=FileData(), sources=Sources(urls=(UrlData(target=target),))))


def test_parts_of_all_kinds_become_artifacts_with_names_of_their_own() -> None:
    parts = (
        Output("done"),
        File(b"\x89PNG", "image/png", "map.png"),
        Link("https://a.example/report", None, "The report"),
    )
    result = result_of(drawn, skill_result(list(parts), 0.1))
    assert len({one.name for one in result.outputs}) == 3
    again = read(encode(result), Result)
    assert [one.file and part_of(one.file) for one in again.outputs] == [None, *parts[1:]]
    assert [text_of(one) for one in again.outputs] == [
        "done",
        "map.png: image/png, 4 bytes",
        "The report:\nhttps://a.example/report",
    ]


@pytest.mark.parametrize("part", [File(b"x", "text/plain"), Link("https://a.example/")])
def test_a_skill_may_return_one_part(part: File | Link) -> None:
    assert skill_result(part, 0.0) == SkillResult((part,))


def test_a_reference_without_a_url_is_named() -> None:
    empty = Artifact(name="it", file=FileSharing(file=FileData(), sources=Sources()))
    assert text_of(empty) == "it:"
