"""The lines of the record, however many are made at a time."""

from hypothesis import given
from hypothesis import strategies as st

from component.audit.lines import Chain, read_line
from component.audit.protocol import AuditEvent

_TEXTS = st.one_of(
    st.text(max_size=8),
    st.sampled_from(("x" * 1_950, "ü" * 5_000, "\ud800")),
)
_EVENTS = st.builds(AuditEvent, kind=st.just("execute"), outcome=_TEXTS, subject=_TEXTS)
_STEPS = st.sampled_from((0, 1_000, 1_000_000, 999_999_999, 3_600_000_000_000))


@given(
    kinds=st.lists(_EVENTS, min_size=1, max_size=3),
    rows=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4), _STEPS), max_size=12),
)
def test_events_made_together_are_the_lines_that_each_makes_alone(
    kinds: list[AuditEvent], rows: list[tuple[int, int, int]]
) -> None:
    together, alone = Chain(), Chain()
    now, times, events = 1_700_000_000_000_000_000, [], []
    for which, often, step in rows:
        now += step
        for _ in range(often):
            times.append(now)
            events.append(kinds[which % len(kinds)])
    made = together.add(times, events)
    assert made == b"".join(
        [alone.add((time,), (event,)) for time, event in zip(times, events, strict=True)]
    )
    assert together.last == alone.last
    lines = [read_line(raw) for raw in made.splitlines()]
    assert all(line is not None and line.matches for line in lines)
    assert [line.line.seq for line in lines if line] == list(range(1, len(events) + 1))


def test_only_texts_of_more_than_400_characters_are_cut_in_a_line_that_is_too_long() -> None:
    event = AuditEvent(kind="execute", outcome="x" * 400, subject="y" * 401, detail="z" * 5_000)
    line = read_line(Chain().add((0,), (event,)).rstrip())
    assert line is not None
    assert line.line.outcome == "x" * 400
    assert line.line.subject == "y" * 399 + "…"
    assert line.line.detail == "z" * 399 + "…"
