"""Whatever is done to the record is found, and named: the file and the number."""

import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from component.audit.files import end_of, files_in, name_of, old_files, removal_of, remove_files
from component.audit.lines import GENESIS, TAIL_BYTES, Chain, ChainLink, read_line
from component.audit.protocol import AuditEvent
from component.audit.verify import Verification, verify

_DAY_NS = 86_400 * 10**9
_START_NS = 1_790_000_000 * 10**9

texts = st.text(max_size=12)
events = st.builds(
    AuditEvent,
    kind=st.sampled_from(("execute", "policy", "tool-call")),
    outcome=st.sampled_from(("done", "refused")),
    principal=texts,
    subject=texts,
    detail=texts,
)
files_of_events = st.lists(st.lists(events, min_size=1, max_size=4), min_size=1, max_size=4)


def write(directory: Path, files: Sequence[Sequence[AuditEvent]]) -> ChainLink:
    chain, ns = Chain(), _START_NS
    for number, file in enumerate(files):
        path = directory / name_of(chain.seq + 1)
        path.write_bytes(chain.add([ns + number * _DAY_NS] * len(file), file))
    return chain.last


def written(directory: Path) -> list[tuple[Path, list[bytes]]]:
    return [(path, path.read_bytes().splitlines(keepends=True)) for path in files_in(directory)]


def independent(directory: Path, head: ChainLink | None = None) -> bool:
    """The program that docs/reference/audit.md shows: it uses nothing of this project."""
    page = (Path(__file__).parents[3] / "docs" / "reference" / "audit.md").read_text()
    program = page.partition("```python\n")[2].partition("```")[0]
    given = [str(directory), *([] if head is None else [f"{head.seq}:{head.hash}"])]
    return subprocess.run([sys.executable, "-c", program, *given], check=False).returncode == 0


@given(files_of_events)
def test_what_was_written_is_whole(files: list[list[AuditEvent]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        last = write(directory, files)
        verdict = verify(directory, [last])
        assert verdict.whole
        assert (verdict.first, verdict.last, verdict.hash) == (1, last.seq, last.hash)
        assert (verdict.lines, verdict.files) == (last.seq, len(files))


@given(files_of_events, st.data())
def test_any_change_of_any_line_is_found_where_it_is(
    files: list[list[AuditEvent]], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        last = write(directory, files)
        path, lines = data.draw(st.sampled_from(written(directory)))
        index = data.draw(st.integers(0, len(lines) - 1))
        line = bytearray(lines[index])
        at = data.draw(st.integers(0, len(line) - 1))
        line[at] ^= data.draw(st.integers(1, 255))
        seq = int(path.name[6:18]) + index
        path.write_bytes(b"".join([*lines[:index], bytes(line), *lines[index + 1 :]]))
        assert_found(verify(directory, [last]), path, seq)


@given(files_of_events, st.data())
def test_any_lines_that_are_removed_are_found(
    files: list[list[AuditEvent]], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        last = write(directory, files)
        path, lines = data.draw(st.sampled_from(written(directory)))
        first = data.draw(st.integers(0, len(lines) - 1))
        beyond = data.draw(st.integers(first + 1, len(lines)))
        path.write_bytes(b"".join(lines[:first] + lines[beyond:]))
        verdict = verify(directory, [last])
        assert not verdict.whole
        named = verdict.findings[0]
        gone = range(int(path.name[6:18]) + first, int(path.name[6:18]) + beyond)
        assert named.what in ("removed", "cut off", "moved")
        assert str(gone[0]) in verdict.findings[0].sentence or named.seq - 1 in gone


@given(files_of_events, st.data())
def test_a_file_that_is_removed_is_found(
    files: list[list[AuditEvent]], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        last = write(directory, files)
        path, lines = data.draw(st.sampled_from(written(directory)))
        path.unlink()
        verdict = verify(directory, [last])
        first = int(path.name[6:18])
        assert [each.what for each in verdict.findings] in (["removed"], ["cut off"])
        if len(files) > 1:
            one = len(lines) == 1
            missing = (
                f"line {first} is" if one else f"lines {first} to {first + len(lines) - 1} are"
            )
            assert f"{missing} missing." in verdict.findings[0].sentence


@given(files_of_events, st.data())
def test_lines_in_another_order_are_found(
    files: list[list[AuditEvent]], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        last = write(directory, files)
        assume(last.seq > 1)
        everything = [line for _, lines in written(directory) for line in lines]
        other = data.draw(st.permutations(everything))
        first = next((n for n, pair in enumerate(zip(everything, other)) if pair[0] != pair[1]), -1)  # noqa: B905
        assume(first >= 0)
        left = iter(other)
        for path, lines in written(directory):
            path.write_bytes(b"".join(next(left) for _ in lines))
        verdict = verify(directory, [last])
        assert not verdict.whole
        assert read_seq(other[first]) in {each.seq for each in verdict.findings}


@given(files_of_events, st.data())
def test_a_line_that_is_put_in_is_found(files: list[list[AuditEvent]], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        last = write(directory, files)
        path, lines = data.draw(st.sampled_from(written(directory)))
        index = data.draw(st.integers(0, len(lines)))
        seq = int(path.name[6:18]) + index
        forged = Chain(ChainLink(seq - 1, data.draw(st.sampled_from((last.hash, GENESIS)))))
        extra = data.draw(
            st.one_of(
                st.sampled_from(lines),
                st.binary(max_size=20).map(lambda raw: raw.replace(b"\n", b"") + b"\n"),
                events.map(lambda event: forged.add([_START_NS], [event])),
            )
        )
        # At the very end a line that follows is what the service would write.
        follows = seq == last.seq + 1 and read_seq(extra) == seq
        assume(not (follows and read_prev(extra) == last.hash))
        path.write_bytes(b"".join([*lines[:index], extra, *lines[index:]]))
        verdict = verify(directory, [last])
        assert not verdict.whole
        assert path.name in {each.file for each in verdict.findings} or index == len(lines)


@given(files_of_events, st.data())
def test_any_tail_that_is_cut_off_is_found(
    files: list[list[AuditEvent]], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        last = write(directory, files)
        left = data.draw(
            st.integers(0, len(b"".join(b"".join(one) for _, one in written(directory))) - 1)
        )
        for path, lines in written(directory):
            content = b"".join(lines)
            path.write_bytes(content[:left])
            if left <= 0:
                path.unlink()
            left = max(0, left - len(content))
        verdict = verify(directory, [last])
        assert "cut off" in {each.what for each in verdict.findings}
        assert f"{last.seq}" in verdict.findings[-1].sentence


@given(files_of_events, st.data())
def test_a_chain_that_was_made_anew_is_not_the_one_that_is_known(
    files: list[list[AuditEvent]], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        last = write(directory, files)
        at = data.draw(st.integers(0, len(files) - 1))
        other = data.draw(events)
        assume(other != files[at][0])
        forged = write(directory, [*files[:at], [other, *files[at][1:]], *files[at + 1 :]])
        assert forged != last
        assert verify(directory).whole  # nobody could tell from the files alone
        verdict = verify(directory, [last])
        assert [(each.what, each.seq) for each in verdict.findings] == [("changed", last.seq)]


@given(files_of_events, st.integers(1, 3))
def test_what_is_removed_by_age_leaves_a_whole_record(
    files: list[list[AuditEvent]], keep_days: int
) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        last = write(directory, files)
        now = (_START_NS + len(files) * _DAY_NS) // 10**6
        old, link = old_files(directory, keep_days, now)
        assert len(old) == max(0, len(files) - 1 - keep_days)
        if link is None:
            return
        chain = Chain(last)
        with files_in(directory)[-1].open("ab") as file:
            file.write(chain.add([now * 10**6], [removal_of(old, link)]))
        assert verify(directory).whole  # said and not yet done
        remove_files(old)
        verdict = verify(directory, [last])
        assert verdict.whole
        assert verdict.first == link.seq + 1
        assert f"line {verdict.first} " in verdict.notes[0]
        files_in(directory)[0].unlink()
        assert not verify(directory).whole


def test_a_line_that_comes_again_is_called_moved(tmp_path: Path) -> None:
    event = AuditEvent(kind="execute", outcome="done")
    last = write(tmp_path, [[event] * 3])
    path, lines = written(tmp_path)[0]
    path.write_bytes(b"".join([*lines, lines[1]]))
    verdict = verify(tmp_path, [last])
    assert [(each.what, each.line, each.seq) for each in verdict.findings] == [("moved", 4, 2)]
    assert "moved, repeated or inserted" in verdict.findings[0].sentence


def test_the_program_in_the_guide_agrees(tmp_path: Path) -> None:
    event = AuditEvent(
        kind="execute", outcome="done", principal="juliet@example.com", subject="écho"
    )
    last = write(tmp_path, [[event, event], [event]])
    assert independent(tmp_path)
    assert independent(tmp_path, last)
    path, lines = written(tmp_path)[0]
    for wrong in (
        [lines[0].replace(b"juliet", b"romeo!"), lines[1]],
        [lines[1], lines[0]],
        [lines[0], lines[0], lines[1]],
        [lines[0]],
    ):
        path.write_bytes(b"".join(wrong))
        assert not independent(tmp_path, last)
        assert not verify(tmp_path, [last]).whole
    path.write_bytes(b"".join(lines))
    files_in(tmp_path)[-1].unlink()
    assert independent(tmp_path)
    assert not independent(tmp_path, last)


def test_a_line_is_hashed_as_it_stands(tmp_path: Path) -> None:
    write(tmp_path, [[AuditEvent(kind="execute", outcome="done", detail='"quoted"\n')]])
    raw = files_in(tmp_path)[0].read_bytes().rstrip(b"\n")
    line = json.loads(raw)
    assert list(line)[-1] == "hash"
    assert line["detail"] == '"quoted"\n'
    content = raw.replace(f',"hash":"{line["hash"]}"'.encode(), b"")
    assert hashlib.sha256(content).hexdigest() == line["hash"]
    assert len(raw) - len(content) == TAIL_BYTES - 1


def test_long_and_broken_texts_are_cut_not_lost(tmp_path: Path) -> None:
    long = AuditEvent(kind="execute", outcome="done", detail="x" * 100_000)
    broken = AuditEvent(kind="execute", outcome="done", detail="\ud800 alone")
    write(tmp_path, [[long, broken]])
    lines = files_in(tmp_path)[0].read_bytes().splitlines()
    assert verify(tmp_path).whole
    assert len(lines[0]) < 1000
    assert json.loads(lines[0])["detail"].endswith("…")
    assert json.loads(lines[1])["detail"] == "? alone"


@given(st.binary(max_size=400))
def test_anything_else_is_no_line(raw: bytes) -> None:
    assert read_line(raw) is None


@given(files_of_events, st.binary(max_size=300))
def test_the_end_of_a_file_is_its_last_whole_line(
    files: list[list[AuditEvent]], rest: bytes
) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        last = write(directory, files)
        path = files_in(directory)[-1]
        size = path.stat().st_size
        with path.open("ab") as file:
            file.write(rest)
        end = end_of(path)
        assert end.link == last
        assert (end.size, end.rest) == (size, rest)


def test_the_end_is_found_over_blocks(tmp_path: Path) -> None:
    event = AuditEvent(kind="execute", outcome="done", detail="é" * 300)
    last = write(tmp_path, [[event] * 500])
    path = files_in(tmp_path)[0]
    assert end_of(path).link == last
    path.write_bytes(path.read_bytes() + b"\0" * 200_000)
    assert end_of(path).link == last


@pytest.mark.parametrize("known", [ChainLink(3, "ab" * 32)])
def test_a_record_that_is_gone_is_named(tmp_path: Path, known: ChainLink) -> None:
    verdict = verify(tmp_path, [known])
    assert [each.what for each in verdict.findings] == ["cut off"]
    assert "There are no files" in verdict.findings[0].sentence


def assert_found(verdict: Verification, path: Path, seq: int) -> None:
    """The first thing that is wrong is in this file, at this line or next to it."""
    assert not verdict.whole
    assert any(each.file == path.name for each in verdict.findings)
    assert min(abs(each.seq - seq) for each in verdict.findings) <= 1


def read_seq(raw: bytes) -> int:
    sealed = read_line(raw.rstrip(b"\n"))
    return -1 if sealed is None else sealed.line.seq


def read_prev(raw: bytes) -> str:
    sealed = read_line(raw.rstrip(b"\n"))
    return "" if sealed is None else sealed.line.prev
