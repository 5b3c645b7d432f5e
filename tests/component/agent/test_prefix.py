"""Between compactions, the bytes of a request begin with those of the previous one."""

from benchmarks.prefix import TURNS, sent, shared


def test_at_least_95_percent_of_a_request_are_the_beginning_of_the_next_one() -> None:
    bodies = sent()
    assert len(bodies) == 2 * TURNS
    shares = shared(bodies)
    assert min(shares) >= 0.95


def test_the_measurement_detects_a_different_beginning() -> None:
    def body(*texts: str) -> dict[str, object]:
        return {"messages": [{"role": "user", "content": text} for text in texts], "tools": []}

    assert shared([body("one"), body("one", "two")]) == [1.0]
    (share,) = shared([body("x" * 400, "two"), body("y" * 400, "two", "three")])
    assert share < 0.2
