"""About how many tokens a text has, without the model's own way to count."""

import math

PER_MESSAGE = 8
"""What a message takes beside its text: its role, and where it begins and ends."""


def estimate(text: str) -> int:
    """Rather too many than too few: three letters to a token, each digit one.

    Outside ASCII a token is two bytes, which is one letter of Cyrillic or most of a Chinese one.
    """
    size = len(text)
    others = 0 if text.isascii() else len(text.encode(errors="replace")) - size
    digits = sum(map(text.count, "0123456789"))
    return digits + math.ceil((size - digits) / 3) + math.ceil(others / 2)
