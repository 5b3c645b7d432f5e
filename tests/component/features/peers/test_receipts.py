"""What a receipt contains of those of others."""

from component.features.peers.receipts import _MOST_BYTES, _fitting


def test_receipts_of_others_are_left_out_when_they_are_too_large_together() -> None:
    assert _fitting([]) == ()
    assert _fitting(["a", "b"]) == ("a", "b")
    half = "x" * (_MOST_BYTES // 2)
    assert _fitting([half, half, "y"]) == (half, half)
    assert _fitting(["x" * (_MOST_BYTES + 1), "y"]) == ()
