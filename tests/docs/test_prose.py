"""The check of words reports them with their line, and leaves literals alone."""

import pytest

from tests.tools.prose import check, rules

RULES = rules()


@pytest.mark.parametrize(
    ("name", "text", "reported"),
    [
        ("a.md", "One.\n\nIt is\nthus said.", ["a.md:4: Write 'so' instead of 'thus'."]),
        (
            "a.md",
            "| a |\n| --- |\n| Lest it |",
            ["a.md:3: Write 'so that … not' instead of 'Lest'."],
        ),
        ("a.md", "```\nthus\n```\n\n    thus\n\n`thus` and https://thus.example/thus", []),
        ("a.py", '"""One.\n\nHence two."""\n', ["a.py:3: Write 'therefore' instead of 'Hence'."]),
        ("a.py", 'x = "thus"\n"""About x, not ``hence``."""\n', []),
        ("a.md", "There is no skill. It is no longer there. It is no skill.", ["a.md:1: Rewrite"]),
        ("a.md", "There\nis no skill.", []),
    ],
)
def test_words_are_reported_with_their_line(name: str, text: str, reported: list[str]) -> None:
    found = list(check(name, text, RULES))

    assert len(found) == len(reported)
    assert all(line.startswith(start) for line, start in zip(found, reported, strict=True)), found


def test_every_rule_has_words_and_a_message_for_them() -> None:
    assert {rule.extends for rule in RULES} == {"existence", "substitution"}
    for rule in RULES:
        assert rule.message.count("%s") == (2 if rule.swap else 1)
        assert bool(rule.tokens) != bool(rule.swap)
