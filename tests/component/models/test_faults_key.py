"""No part of an API key is in an error, however a provider repeats it."""

import base64
from html import unescape
from urllib.parse import quote, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.models.faults import Fault, Where, without_key

KEY = "sk-proj-A1b2C3d4E5f6G7h8"


@pytest.mark.parametrize(
    "said",
    [
        KEY,
        f"'{KEY}'.",
        KEY.upper(),
        KEY.lower(),
        quote(f"key={KEY}", safe=""),
        KEY.replace("-", "%2D"),
        KEY[:12],
        KEY[-10:],
        "sk-proj-****G7h8",
        "sk-p...G7h8",
        "sk-pxxxxxxxxG7h8",
        base64.b64encode(KEY.encode()).decode(),
        f"Bearer:{base64.b64encode(f'{KEY}'.encode()).decode()[:14]}",
        f"Basic {base64.b64encode(f':{KEY}'.encode()).decode()}",
        f"Basic {base64.b64encode(f'me:{KEY}'.encode()).decode()}",
        f"Basic {base64.urlsafe_b64encode(f'api:{KEY}'.encode()).decode()}",
        KEY.encode().hex(),
        KEY[::-1],
        KEY.replace("-", " "),
        " ".join(KEY[at : at + 4] for at in range(0, len(KEY), 4)),
        " ".join(KEY),
        "-".join(KEY),
        "\u200b".join(KEY),
        KEY.replace("-", "%252D"),
        "".join(f"&#{ord(letter)};" for letter in KEY),
        "".join(f"%{ord(letter):02x}" for letter in KEY),
    ],
)
def test_a_part_of_the_key_is_removed(said: str) -> None:
    where = Where("m", "https://a.example", "llm", KEY)
    text = str(where.error(Fault(400, f"The key {said} is wrong, or the model is.")))
    assert "…" in text
    squashed = "".join(filter(str.isalnum, unquote(unquote(unescape(text))).casefold()))
    assert "g7h8" not in squashed
    assert "a1b2" not in squashed
    assert text.endswith("wrong, or the model is.")


@pytest.mark.parametrize("word", ["gpt-4o-mini", "max_tokens", "...", "maximum", "sk-", "***"])
def test_other_words_stay(word: str) -> None:
    assert without_key(word, KEY) == word


@given(st.text(max_size=40), st.text(min_size=1, max_size=60))
def test_the_key_is_never_left(word: str, key: str) -> None:
    assert key not in without_key(f"{word}{key}{word}", key) or key == "…"
    assert without_key(word, "") == " ".join(word.split())
