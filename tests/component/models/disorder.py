"""Events of answers in any order, with anything in them, for the readers of the dialects."""

import contextlib
import json
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from component.models.adapter import AnswerReader, ProviderFaultError
from component.models.answer_limits import BadJSONError, TooMuchError
from component.models.messages import ToolCall
from component.models.tool_schemas import ToolNames

_WILD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


def parts(reader: AnswerReader) -> tuple[Any, ...]:
    """The parts that were read."""
    return reader.draft.parts(ToolNames(()), "o", set())


def read_disordered(
    reader: AnswerReader, events: Sequence[dict[str, Any]], data: st.DataObject
) -> None:
    """Let a reader read some of these events, and check the result."""
    chosen = json.loads(json.dumps(data.draw(st.lists(st.sampled_from(events), max_size=12))))
    for event in chosen:
        if data.draw(st.integers(0, 3)) == 0:
            inner = [each for each in event.values() if isinstance(each, dict) and each]
            holder = data.draw(st.sampled_from([event, *inner]))
            holder[data.draw(st.sampled_from(sorted(holder)))] = data.draw(_WILD)
        with contextlib.suppress(BadJSONError, TooMuchError, ProviderFaultError):
            reader.event(json.dumps(event).encode())
    calls = [part for part in parts(reader) if isinstance(part, ToolCall)]
    assert len({call.id for call in calls}) == len(calls)
    assert reader.draft.finish_reason in ("stop", "length", "tool_calls", "content_filter")
