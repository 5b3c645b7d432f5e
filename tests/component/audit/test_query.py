"""Looking for lines: what is found is what an ordinary search of all lines finds."""

import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.audit.files import files_in, name_of
from component.audit.lines import Chain, Line, read_line
from component.audit.protocol import AuditEvent
from component.audit.query import AuditQuery, earliest, follow, latest, parse_moment

_HOUR_NS = 3600 * 10**9
_START_NS = 1_790_000_000 * 10**9
few = st.sampled_from(("", "a", 'b"', "é\n"))
events = st.builds(
    AuditEvent,
    kind=st.sampled_from(("execute", "policy")),
    outcome=st.sampled_from(("done", "refused")),
    principal=few,
    subject=few,
    trace=few,
)
maybe = st.none() | few
times = st.none() | st.integers(0, 20).map(
    lambda hours: parse_moment(
        datetime.fromtimestamp(1_790_000_000 + hours * 3600, UTC).isoformat()
    )
)
queries = st.builds(
    AuditQuery,
    kind=st.none() | st.sampled_from(("execute", "policy")),
    principal=maybe,
    subject=maybe,
    trace=maybe,
    since=times,
    until=times,
)


def write(directory: Path, files: list[list[AuditEvent]]) -> Chain:
    chain = Chain()
    for file in files:
        path = directory / name_of(chain.seq + 1)
        at = [_START_NS + (chain.seq + 1 + index) * _HOUR_NS for index in range(len(file))]
        path.write_bytes(chain.add(at, file))
    return chain


def fits(line: Line, query: AuditQuery) -> bool:
    return (
        all(
            not getattr(query, name) or getattr(line, name) == getattr(query, name)
            for name in ("kind", "principal", "subject", "trace")
        )
        and (query.since is None or line.time >= query.since)
        and (query.until is None or line.time < query.until)
    )


@given(st.lists(st.lists(events, min_size=1, max_size=5), max_size=4), queries)
def test_both_ways_find_what_fits(files: list[list[AuditEvent]], query: AuditQuery) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        write(directory, files)
        sealed = [
            read_line(raw) for path in files_in(directory) for raw in path.read_bytes().splitlines()
        ]
        expected = [one.line for one in sealed if one is not None and fits(one.line, query)]
        assert list(earliest(directory, query)) == expected
        assert list(latest(directory, query)) == expected[::-1]


def test_what_is_written_from_now_on_is_followed_into_the_next_file(tmp_path: Path) -> None:
    event = AuditEvent(kind="execute", outcome="done", subject="old")
    chain = write(tmp_path, [[event]])
    first = files_in(tmp_path)[0]
    new = chain.add([_START_NS], [AuditEvent(kind="execute", outcome="done", subject="new")])
    other = chain.add([_START_NS], [AuditEvent(kind="policy", outcome="refused")])
    last = chain.add([_START_NS], [AuditEvent(kind="execute", outcome="done", subject="last")])

    def append(data: bytes) -> None:
        with first.open("ab") as file:
            file.write(data)

    steps: list[Callable[[], object]] = [
        lambda: append(new[:20]),
        lambda: append(new[20:]),
        lambda: (append(other), (tmp_path / name_of(4)).write_bytes(last)),
    ]
    found = follow(tmp_path, AuditQuery(kind="execute"), wait=lambda _seconds: steps.pop(0)())
    assert [next(found).subject, next(found).subject] == ["new", "last"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-03-01", "2026-03-01T00:00:00.000Z"),
        ("2026-03-01T12:00:00+01:00", "2026-03-01T11:00:00.000Z"),
        ("2026-03-01T12:00:00.5Z", "2026-03-01T12:00:00.500Z"),
        ("90m", "2026-03-01T22:30:00.000Z"),
        ("2d", "2026-02-28T00:00:00.000Z"),
    ],
)
def test_times_are_read(text: str, expected: str) -> None:
    assert parse_moment(text, datetime(2026, 3, 2, tzinfo=UTC)) == expected


@given(st.text(max_size=12))
def test_any_text_is_a_time_or_refused_in_a_sentence(text: str) -> None:
    try:
        found = parse_moment(text)
    except ValueError:
        return
    assert found == parse_moment(found)


@pytest.mark.parametrize("text", ["", "soon", "999999999d", "0001-01-01T00:00:00+23:00", "-5m"])
def test_what_is_no_time_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(ValueError, match="is not a valid time: write 2026-03-01"):
        parse_moment(text)
