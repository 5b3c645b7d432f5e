"""What a receipt contains of those of others, and which ones count."""

from pathlib import Path

import pytest

from component.features.peers import grant_rows
from component.features.peers.receipts import _MOST_BYTES, _fitting
from component.grants.receipt import Receipt, write_receipt
from component.tasks.receipts import Ending
from tests.component.features.peers.test_calls import ended
from tests.component.features.peers.test_grants import AGENT_A, BOT, stored_receipts, three
from tests.kit import anyio_backend
from xep.fluux_agent.grant import SignedReceipt

__all__ = ["anyio_backend"]


def test_receipts_of_others_are_left_out_when_they_are_too_large_together() -> None:
    assert _fitting([]) == ()
    assert _fitting(["a", "b"]) == ("a", "b")
    half = "x" * (_MOST_BYTES // 2)
    assert _fitting([half, half, "y"]) == (half, half)
    assert _fitting(["x" * (_MOST_BYTES + 1), "y"]) == ()


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("claims", "counts"),
    [
        ({}, True),
        ({"aud": "assistant@agent.d.example"}, False),
        ({"sub": "juliet@a.example"}, False),
        ({"iss": "assistant@agent.d.example"}, False),
        ({"request": "another"}, False),
    ],
)
async def test_a_receipt_about_other_work_does_not_count(
    tmp_path: Path, claims: dict[str, str], counts: bool
) -> None:
    async with three(tmp_path) as (a, b, _, romeo):

        def signed(ending: Ending) -> SignedReceipt:
            """A receipt that B signs, with these claims in place of the right ones."""
            assert ending.database is not None
            key = grant_rows.current_key(ending.database, BOT).key
            right = {
                "iss": BOT,
                "aud": AGENT_A,
                "sub": "romeo@a.example",
                "request": ending.request.name,
            }
            made = Receipt(iat=1, jti="x", skill="x", state="completed", **right | claims)
            return SignedReceipt(jws=write_receipt(made, key))

        b.kernel.tasks.service.sign_receipts(signed)
        await romeo.say("/run b.ask_first text=rivers")
        await romeo.hear("Go on?")
        await romeo.say("yes")
        await ended(romeo)
        assert bool(await stored_receipts(a)) == counts
