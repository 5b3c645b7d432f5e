"""Directories have readable names if possible, are inside the root, and are never shared."""

import unicodedata
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from component.memory_directory import files
from component.memory_directory.files import MemoryStoreError
from component.memory_directory.layout import Layout, SessionKey, file_name
from xep.jid import JID

LAYOUT = Layout(Path("/memory"))


def key(who: str, agent: str = "assistant") -> SessionKey:
    return SessionKey(agent, JID.parse(who))


def same_to_a_careless_disk(name: str) -> str:
    """Return the name that a file system compares that ignores case and composition."""
    return unicodedata.normalize("NFD", unicodedata.normalize("NFD", name).casefold())


# Addresses as servers send them, and then anything that a program could take for one.
ADDRESSES = st.one_of(
    st.builds(
        "{}@{}".format,
        st.text("abcyz019.-_%+=~!$*\\#", min_size=1, max_size=12),
        st.sampled_from(["example.com", "a.b", "[::1]", "例え.jp", "x"]),
    ),
    st.sampled_from(["example.com", "personas", "identity.md", "user.md", "agents", "agent.md"]),
)
NAMES = st.one_of(
    ADDRESSES,
    st.text(max_size=12),
    st.text("aAßsS\u03c2\u03c3\u03a3é\u0345\u1fb3/.&;0_@ \0\u200d\ud800", max_size=8),
    st.text("ab", min_size=1, max_size=3).map(lambda text: text * 120 + "@example.com"),
    st.sampled_from([".", "..", "", "_agents", "_sub", ".git", "PERSONAS", "&2e;.", "a&41;"]),
)


@given(ADDRESSES)
@example("bob%facebook.com@gateway.example.com")
@example("d\\27artagnan@example.com")
@example("..@example.com")
@example("bot@[::1]")
@example("agent.example.md")
def test_an_address_that_is_a_file_name_is_used_unchanged(who: str) -> None:
    taken = {"personas", "identity.md", "user.md"}
    assert (file_name(who) == who) is (who not in taken)


@given(NAMES, NAMES)
@example("straße@x", "strasse@x")
@example("A@x", "a@x")
@example("e\u0301@x", "\u00e9@x")
@example("\u03c2@x", "\u03c3@x")
@example("identity.md", "&69;dentity.md")
@example("a/b@x", "a&2f;b@x")
@example("a" * 300 + "@x", "a" * 301 + "@x")
def test_different_names_have_different_files_on_any_disk(one: str, other: str) -> None:
    if one != other:
        assert file_name(one) != file_name(other)
        assert same_to_a_careless_disk(file_name(one)) != same_to_a_careless_disk(file_name(other))


@given(NAMES)
def test_a_file_name_is_one_path_component_of_limited_length(name: str) -> None:
    made = file_name(name)
    assert made not in {"", ".", ".."}
    assert not set(made) & set("/\0 ")
    assert 0 < len(made.encode()) <= 255
    assert Path("/memory", made).resolve() == Path("/memory") / made


@given(st.lists(NAMES.filter(bool), min_size=1, max_size=3), NAMES)
def test_every_conversation_is_inside_the_root(agent: list[str], who: str) -> None:
    folder = LAYOUT.folder(SessionKey("/".join(agent), JID(None, who)))
    assert folder.resolve().is_relative_to(LAYOUT.root)
    assert folder != LAYOUT.root


AGENTS = st.lists(st.sampled_from(["assistant", "a", "b", "_agents", "_sub", ".."]), min_size=1)


@given(st.tuples(AGENTS, NAMES), st.tuples(AGENTS, NAMES))
def test_directories_of_conversations_do_not_overlap(
    one: tuple[list[str], str], other: tuple[list[str], str]
) -> None:
    keys = [SessionKey("/".join(agent), JID(None, who)) for agent, who in (one, other)]
    if keys[0] != keys[1]:
        first, second = map(LAYOUT.folder, keys)
        assert not first.is_relative_to(second)
        assert not second.is_relative_to(first)


def test_the_default_agent_has_the_layout_of_fluux_agent() -> None:
    assert LAYOUT.folder(key("alice@example.com")) == Path("/memory/alice@example.com")
    assert LAYOUT.agent_directory("assistant") == Path("/memory")


def test_other_agents_and_sub_agents_have_their_own_directories() -> None:
    assert LAYOUT.folder(key("a@b", "researcher")) == Path("/memory/_agents/researcher/a@b")
    assert LAYOUT.folder(key("a@b", "assistant/1")) == Path("/memory/_sub/1/a@b")
    assert LAYOUT.agent_directory("x/1/2") == Path("/memory/_agents/x/_sub/1/_sub/2")
    assert LAYOUT.agent_directories("x/1") == (
        Path("/memory/_agents/x/_sub/1"),
        Path("/memory/_agents/x"),
        Path("/memory"),
    )


def test_each_occupant_of_a_room_has_a_directory_beside_that_of_the_room() -> None:
    keys = [key("a@b"), key("a@b/one"), key("a@b/One"), key("a@b/o/../ne"), key("a@b/two")]
    found = [LAYOUT.folder(each) for each in keys]
    assert len({str(each).casefold() for each in found}) == len(keys)
    assert {each.parent for each in found} == {found[0].parent}


def test_a_directory_that_is_a_link_is_refused(tmp_path: Path) -> None:
    root = files.open_root(tmp_path / "memory")
    (tmp_path / "elsewhere").mkdir()
    (root / "alice@example.com").symlink_to(tmp_path / "elsewhere")
    folder = Layout(root).folder(key("alice@example.com"))
    for touch in (files.check_folder, files.make_folder):
        with pytest.raises(MemoryStoreError, match=r"alice@example\.com is a symbolic link"):
            touch(root, folder)


def test_a_link_is_refused_anywhere_in_a_path(tmp_path: Path) -> None:
    root = files.open_root(tmp_path / "memory")
    (root / "bob@b").mkdir()
    (root / "_agents").symlink_to(root / "bob@b")
    with pytest.raises(MemoryStoreError, match="_agents is a symbolic link"):
        files.make_folder(root, Layout(root).folder(key("alice@a", "helper")))


def test_the_root_may_be_a_link_since_it_is_the_operators(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "memory").symlink_to(tmp_path / "disk")
    assert files.open_root(tmp_path / "memory") == (tmp_path / "disk").resolve()


def test_a_root_that_is_a_file_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "memory").touch()
    with pytest.raises(MemoryStoreError, match="a file where a directory should be"):
        files.open_root(tmp_path / "memory")
