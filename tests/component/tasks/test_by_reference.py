"""Parts of a result that do not fit into a stanza are given by reference (EXE-012)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.skills import Context, skill
from component.skills.outputs import File, Link, Output, SkillResult
from component.tasks.outputs import fitting, part_of, sent_file, texts_of
from component.tasks.request import Request
from tests.component.tasks.world import AGENT, Open, living
from xep.file_sharing import File as FileData
from xep.file_sharing import FileSharing, Sources, UrlData
from xep.fluux_agent import errors
from xep.fluux_agent.delegation import Delegation
from xep.fluux_agent.execute import Output as Artifact
from xep.fluux_agent.execute import Result
from xep.hashes import Hash
from xep.jid import JID
from xep.stanza_error import StanzaError

pytestmark = pytest.mark.anyio

DIGEST = bytes(32)


class Place:
    """Keeps files, and gives links to them."""

    def __init__(self) -> None:
        self.files: list[File] = []

    async def share(self, file: File, _request: Request | None = None) -> Link:
        self.files.append(file)
        url = f"https://files.example/{len(self.files)}"
        return Link(url, file.media_type, file.name, len(file.data), DIGEST)


@skill(read_only=True)
def draw(size: int) -> File:
    """Draw a picture."""
    return File(b"x" * size, "image/png", "map.png")


@skill(read_only=True)
def tell(size: int) -> str:
    """Tell a long story."""
    return "ü" * size


async def test_a_file_that_does_not_fit_is_a_reference_with_size_and_digest(
    open_storage: Open,
) -> None:
    place = Place()
    async with living(open_storage, draw, share=place.share, result_bytes=200_000) as world:
        small = await world.run("draw", params={"size": "1000"})
        large = await world.run("draw", params={"size": "250000"})
    assert isinstance(small, Result)
    assert isinstance(large, Result)
    assert place.files == [File(b"x" * 250_000, "image/png", "map.png")]
    (output,) = large.outputs
    assert output.file is not None
    link = Link("https://files.example/1", "image/png", "map.png", 250_000, DIGEST)
    assert part_of(output.file) == link
    assert small.outputs[0].file is not None
    assert isinstance(part_of(small.outputs[0].file), File)


async def test_a_text_that_does_not_fit_is_a_reference(open_storage: Open) -> None:
    place = Place()
    async with living(open_storage, tell, share=place.share, result_bytes=200_000) as world:
        made = await world.run("tell", params={"size": "150000"})
    assert isinstance(made, Result)
    (file,) = place.files
    assert (file.media_type, file.name) == ("text/plain; charset=utf-8", "output.txt")
    assert file.data.decode() == "ü" * 150_000
    assert made.outputs[0].name == "output"


@pytest.mark.parametrize(
    ("principal", "delegation"),
    [
        (f"ben@{AGENT.domain}", None),
        ("ben@elsewhere.example", None),
        (f"ben@{AGENT.domain}", f"ben@{AGENT.domain}"),
    ],
)
async def test_a_result_of_more_than_16_kb_is_a_reference_for_everybody(
    open_storage: Open, principal: str, delegation: str | None
) -> None:
    place, who = Place(), JID.parse(f"{principal}/1")
    given = None if delegation is None else Delegation(origin=who.bare, max_hops=4, via=(who.bare,))
    async with living(open_storage, tell, share=place.share, result_bytes=200_000) as world:

        async def told(size: int) -> bool:
            params = {"size": str(size)}
            made = await world.execute(world.call("tell", params=params, delegation=given, by=who))
            assert isinstance(made, Result)
            return made.outputs[0].file is None

        assert await told(7_000)
        assert not await told(10_000)
    assert len(place.files) == 1


async def test_a_result_for_another_server_is_inside_if_there_is_no_place_for_files(
    open_storage: Open,
) -> None:
    async with living(open_storage, tell, result_bytes=200_000) as world:
        who = JID.parse("ben@elsewhere.example/1")
        made = await world.execute(world.call("tell", params={"size": "10000"}, by=who))
    assert isinstance(made, Result)
    assert len(made.outputs[0].text) == 10_000


async def test_without_a_place_for_files_a_large_result_is_refused(open_storage: Open) -> None:
    async with living(open_storage, draw, result_bytes=200_000) as world:
        with pytest.raises(StanzaError) as caught:
            await world.run("draw", params={"size": "250000"})
    assert caught.value.application == (errors.TooBig(limit=200_000),)


TEXTS = st.builds(Output, st.text(max_size=3000))
FILES = st.builds(File, st.binary(max_size=3000), st.just("image/png"))


@given(st.lists(TEXTS | FILES, max_size=8), st.integers(8_000, 20_000))
async def test_only_the_largest_parts_are_given_by_reference(
    parts: list[Output | File], most: int
) -> None:
    place = Place()
    fitted = await fitting(SkillResult(tuple(parts)), most, place.share)
    made = fitted.made
    kept = [one for one in made.outputs if not isinstance(one, Link)]
    shared = [len(file.data) for file in place.files]
    assert len(made.outputs) == len(parts)
    assert all(one in parts for one in kept)
    sizes = [
        len(one.data) if isinstance(one, File) else len(one.text.encode(errors="surrogatepass"))
        for one in kept
    ]
    assert sum(sizes) <= most
    if shared and kept:
        assert max(sizes) <= 4 / 3 * max(shared) + 1


async def test_more_small_parts_than_fit_cannot_be_given_by_reference() -> None:
    parts = tuple([Output("x" * 100) for _ in range(100)])
    fitted = await fitting(SkillResult(parts), 20_000, Place().share)
    assert fitted.problem == "it has too many parts"
    assert fitted.made.outputs == parts


@skill(read_only=True)
async def stream(context: Context, size: int) -> str:
    """Publish a long text in parts."""
    for number in range(3):
        await context.output("log", "x" * size, last=number == 2)
    return "All is written."


async def test_an_artifact_that_has_grown_large_is_a_reference(open_storage: Open) -> None:
    place = Place()
    async with living(open_storage, stream, share=place.share, result_bytes=200_000) as world:
        small = await world.run("stream", params={"size": "1000"})
        large = await world.run("stream", params={"size": "6000"})
    assert isinstance(small, Result)
    assert isinstance(large, Result)
    assert [(one.name, len(one.text)) for one in small.outputs] == [("log", 3000), ("output", 15)]
    assert [(one.name, one.text) for one in large.outputs] == [
        ("log", ""),
        ("output", "All is written."),
    ]
    (file,) = place.files
    assert (file.name, len(file.data)) == ("log.txt", 18_000)


async def test_a_file_for_a_person_is_shared_and_its_content_stays_if_it_fits(
    open_storage: Open,
) -> None:
    place = Place()
    async with living(open_storage, draw, share=place.share, result_bytes=200_000) as world:
        asked = world.call("draw", params={"size": "1000"}, thread="t")
        made = await world.execute(asked)
    assert isinstance(made, Result)
    (output,) = made.outputs
    assert output.file is not None
    assert part_of(output.file) == File(b"x" * 1000, "image/png", "map.png")
    sent = sent_file(output)
    assert sent is not None
    assert [url.target for url in sent.sources.urls] == ["https://files.example/1"]
    assert texts_of(made.outputs) == []


async def test_a_result_that_can_neither_be_sent_nor_shared_says_how_to_correct_that(
    open_storage: Open,
) -> None:
    async with living(open_storage, draw, result_bytes=200_000) as world:
        with pytest.raises(StanzaError, match=r"no place for files\. Ask for less at a time"):
            await world.run("draw", params={"size": "250000"})


@pytest.mark.parametrize(
    ("url", "hashes", "is_sent"),
    [
        ("https://files.example/1", (Hash(algo="sha-256", digest=DIGEST),), True),
        ("https://files.example/1", (), False),
        ("javascript:alert(1)", (Hash(algo="sha-256", digest=DIGEST),), False),
    ],
)
def test_only_a_file_with_a_digest_at_an_address_of_the_web_is_sent(
    url: str, hashes: tuple[Hash, ...], is_sent: bool
) -> None:
    source = UrlData(target=url)
    file = FileSharing(file=FileData(hashes=hashes), sources=Sources(urls=(source,)))
    output = Artifact(name="output", type="image/png", file=file)
    assert (sent_file(output) is not None) == is_sent
    assert (texts_of([output]) == []) == is_sent
