"""The tables of XEP-0114: no state is out of reach, and none but the last is a dead end."""

import pytest

from xep.component_states import ACCEPTOR, COMPONENT, State, Step


@pytest.mark.parametrize("table", [COMPONENT, ACCEPTOR])
def test_each_state_of_a_component_stream_can_be_reached_and_left(
    table: dict[State, dict[Step, State]],
) -> None:
    reached, waiting = {State.NEW}, [State.NEW]
    while waiting:
        for state in table[waiting.pop()].values():
            if state not in reached:
                reached.add(state)
                waiting.append(state)
    assert reached == set(table)
    assert [state for state, steps in table.items() if not steps] == [State.CLOSED]
