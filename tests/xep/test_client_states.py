"""The table of a client's stream: no state is out of reach, and none but the last is a dead end."""

from xep.client_states import CLIENT, State


def test_each_state_of_a_client_stream_can_be_reached_and_left() -> None:
    reached, waiting = {State.NEW}, [State.NEW]
    while waiting:
        for state in CLIENT[waiting.pop()].values():
            if state not in reached:
                reached.add(state)
                waiting.append(state)
    assert reached == set(CLIENT) == set(State)
    assert [state for state, steps in CLIENT.items() if not steps] == [State.CLOSED]
