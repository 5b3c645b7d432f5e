"""Code blocks: the name of a language is not shown as text, and nothing else is changed."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from component.link.messages.code_blocks import without_languages
from component.link.messages.styling import styled


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("```python\nx = 1\n```", "```\nx = 1\n```"),
        ("Here:\n```js\na\n```\nand\n``` c++ \nb\n```", "Here:\n```\na\n```\nand\n```\nb\n```"),
        ("```python\nnot closed", "```\nnot closed"),
        ("```python", "```"),
        ("```{.python .numbered}\nx\n```", "```\nx\n```"),
        ('```js title="a b.js" {1,3}\nx\n```', "```\nx\n```"),
        ("```rust {1,3}\nx\n```\r\n", "```\nx\n```\r\n"),
        # What is not a language stays.
        ("```Two words\nx\n```", "```\nTwo words\nx\n```"),
        (f"```{'a' * 41}\nx\n```", f"```\n{'a' * 41}\nx\n```"),
        ("```one line``` of code", "```one line``` of code"),
        ("Write ```python to begin", "Write ```python to begin"),
        # A block within a block is code.
        ("````markdown\n```python\nx\n```\n````\n```py", "````\n```python\nx\n```\n````\n```"),
        ("```md\n ```python\nx\n```", "```\n ```python\nx\n```"),
        ("```md\n~~~python\n```\n```sh", "```\n~~~python\n```\n```"),
        # Quotations and lists.
        ("> ```python\n> x\n> ```", "> ```\n> x\n> ```"),
        ("> ```python\n> x\n```sh\ny", "> ```\n> x\n```\ny"),
        (">> ```python\n>> x\n> ```sh\n> y", ">> ```\n>> x\n> ```\n> y"),
        ("1. a\n   ```python\n   x\n   ```\n```sh", "1. a\n   ```\n   x\n   ```\n```"),
        # Tildes.
        ("~~~python\nx\n~~~\n~~~sh\ny\n~~~~", "~~~\nx\n~~~\n~~~\ny\n~~~~"),
        ("~~~ Menu ~~~\nTea", "~~~ Menu ~~~\nTea"),
        ("    1 + 'a'\n    ~~^~~~~~\nTypeError", "    1 + 'a'\n    ~~^~~~~~\nTypeError"),
        ("x\n~~~python\nnot closed", "x\n~~~python\nnot closed"),
    ],
)
def test_the_language_of_a_code_block_is_removed(text: str, shown: str) -> None:
    assert without_languages(text) == shown
    assert without_languages(shown) == shown


pieces = st.sampled_from(
    [
        *("```", "````", "~~~", "~~~~", "`", "python", "c++", "{.py}", ' t="a b"', "a=b", "word"),
        *("\n", "\n\n", "\r\n", "> ", ">", " ", "    ", "- ", "two words", "\n```\n", "\n~~~\n"),
    ]
)
texts = st.lists(pieces, max_size=30).map("".join)


@given(texts | st.text(max_size=60))
@example("> ```a b\n> ```c\n```d e")
def test_only_the_first_lines_of_blocks_change(text: str) -> None:
    shown = without_languages(text)
    before, after = text.split("\n"), iter(shown.split("\n"))
    for line in before:
        new = next(after)
        if new == line:
            continue
        fence = re.match(r"[ \t>]*(`{3,}|~{3,})", line)
        assert fence is not None, "a line without a fence is not changed"
        assert new == fence.group(), "only a fence is left of its line"
        rest = line.removeprefix(new).strip()
        if len(rest.split()) > 1 and not re.search(r"[={]", rest):
            assert next(after).endswith(rest), "words that are not a language are not lost"
    assert list(after) == [] or len(shown.split("\n")) > len(before)


@given(texts)
def test_text_without_languages_is_not_changed(text: str) -> None:
    shown = without_languages(text)
    assert without_languages(shown) == shown


@given(texts)
def test_no_block_of_an_answer_begins_with_a_language(markdown: str) -> None:
    shown = without_languages(styled(markdown))
    inside = False
    for line in shown.split("\n"):
        # Blocks as a client sees them (XEP-0393 §5.1.2).
        if inside:
            inside = line.rstrip() != "```"
        elif re.fullmatch(r"```[^`]*", line):
            assert not line[3:].strip()
            inside = True


def test_many_lines_of_tildes_take_linear_time() -> None:
    text = "~~~a\n" * 50_000
    assert without_languages(text) == text
