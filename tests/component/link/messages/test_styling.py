"""Markdown as message styling (XEP-0393): what is replaced, and that nothing else is."""

import re
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from component.link.messages import styling
from component.link.messages.styling import LONGEST, MOST_MARKUP, styled


@pytest.mark.parametrize(
    ("markdown", "shown"),
    [
        # Emphasis.
        ("**bold** and __so bold__", "*bold* and *so bold*"),
        ("*it* and _it_", "_it_ and _it_"),
        ("***both***", "_*both*_"),
        ("**bold _it_ bold**", "*bold _it_ bold*"),
        ("~~gone~~", "~gone~"),
        ("a **two\nlines** b", "a *two*\n*lines* b"),  # a span ends with its line
        ("(**x**), “**x**”", "(*x*), “*x*”"),
        ("foo**bar**baz", "foo**bar**baz"),  # within a word nothing is styled
        ("**a\\*b**", "a*b"),  # what would end it too early is shown without style
        ("**2 * 3**", "2 * 3"),
        # Code.
        ("`a*b*c` and ``a`b``", "`a*b*c` and a`b"),
        ("```python\nx = '**'\n\n  y\n```", "```python\nx = '**'\n\n  y\n```"),
        ("~~~\n**x**\n~~~", "```\n**x**\n```"),
        ("````\n```\nx\n````", "```\n ```\nx\n```"),
        ("```\nnot closed", "```\nnot closed\n```"),
        ("- a\n  ```\n  x\n    y\n  ```\n- b", "- a\n```\nx\n  y\n```\n- b"),
        ("- ```\n  x\n  ```", "-\n```\nx\n```"),
        ("> ```\n> x\n> ```", "> ```\n> x\n> ```"),
        ("    char *p, *q;", "    char *p, *q;"),
        # Headings and rules.
        ("# One\n\n### Two **x** ###\ntext", "*One*\n\n*Two x*\ntext"),
        ("Title\n=====\ntext", "*Title*\ntext"),
        ("> ## Q", "> *Q*"),
        ("- # In a list", "- *In a list*"),
        ("# 2 * 3", "2 * 3"),
        ("#\nx", "\nx"),
        ("a\n\n***\n\nb", "a\n\n---\n\nb"),
        ("> a\n>\n> ___", "> a\n>\n> ---"),
        # Lists and quotations stay, and what is in them is converted.
        ("- **a**\n- b\n  1. *c*\n\n     d", "- *a*\n- b\n  1. _c_\n\n     d"),
        ("* **a**\n* b", "* *a*\n* b"),
        ("- [ ] **do**\n- [x] done", "- [ ] *do*\n- [x] done"),
        ("> a **b**\n>> c\nlazy *d*", "> a *b*\n>> c\nlazy _d_"),
        # Links and images.
        ("[text](http://a.example/b_c)", "text (http://a.example/b_c)"),
        ("[**text**](http://a.example)", "*text* (http://a.example)"),
        ("[a](http://a.example/b_(c))", "a <http://a.example/b_(c)>"),
        ("[http://a.example](http://a.example)", "http://a.example"),
        ("<http://a.example/x> <me@a.example>", "http://a.example/x me@a.example"),
        ("http://a.example/a_b_c?x=*", "http://a.example/a_b_c?x=*"),
        ('[a](/b "Title")', 'a (/b "Title")'),
        ("[a](javascript:x) [b]() [](c)", "a (javascript:x) b c"),
        ("![alt *x*](http://a.example/i.png)", "alt x (http://a.example/i.png)"),
        ("![](i.png)", "i.png"),
        ("[a][1]\n\n[1]: http://a.example", "a (http://a.example)\n\n[1]: http://a.example"),
        # Entities, escapes, HTML.
        ("&lt;b&gt; &amp; &#42; &nosuch;", "<b> & * &nosuch;"),
        ("\\*not\\* \\# \\[x\\]", "*not* # [x]"),
        ("<b>x</b> **y**", "<b>x</b> *y*"),
        # Tables.
        ("| A | B |\n|---|:-:|\n| 1 | **2** |\n| 3 | |", "A: 1; B: *2*\nA: 3; B: \N{EN DASH}"),
        ("before\n\nA|B\n-|-\n1|2\n\nafter", "before\n\nA: 1; B: 2\n\nafter"),
        ("| | B |\n|-|-|\n| x | 1<br>2 |", "x; B: 1, 2"),
        ("| A | B |\n|-|-|", "A; B"),
        ("> |A|\n> |-|\n> |1|", "> A: 1"),
        ("|A|\n|-|\n|`x` &amp; **y**|", "A: `x` & *y*"),
        ("|A|B|\n|-|-|\n|1|2|lost|", "|A|B|\n|-|-|\n|1|2|lost|"),
    ],
)
def test_what_is_replaced(markdown: str, shown: str) -> None:
    assert styled(markdown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Good morning!\n\nHow are you?  \n\tFine.",
        "2 * 3 * 4 = 24, and 5*6*7",
        "__init__ and __all__",
        "snake_case_name and __init__.py is not",
        "C:\\path\\to\\file and \\\\server\\share",
        "a_b_c * d ~ e ~~ f # g & h < i > j [k] (l) !m",
        "AT&T; R&D",
        "#hashtag, #1",
        "1. one\n2) two\n- three\n  + four",
        "> quoted\n> - list\nafter",
        "  indented\n      more\n\n\n\nand blank lines  ",
        "a | b\nc | d",
        "x\r\ny z",
        "_emphasis_ `code` ~strike~",
        "/me waves",
    ],
)
def test_other_text_stays_as_it_is(text: str) -> None:
    assert styled(text) == text
    assert styled(styled(text)) == text


def test_windows_line_ends_become_plain_ones_where_something_is_replaced() -> None:
    assert styled("**a**\r\nb\rc") == "*a*\nb\nc"


_pieces = st.sampled_from(
    [
        *("**", "*", "_", "__", "~~", "`", "```", "~~~", "# ", "- ", "1. ", "> ", "|", "|-|-|"),
        *("===", "---", "[", "](", ")", "![", "<", ">", "&amp;", "\\", "<br>", "\n", "\n\n"),
        *("word", "ünï", "x1", " ", ". ", "http://a.example/", "\r\n", "\x00", "\u2028"),
        *("    ", "\t", "[a]: b"),
    ]
)
markdowns = st.lists(_pieces, max_size=30).map("".join)


def words(text: str) -> set[str]:
    return set(re.findall(r"[^\W_]+", text))


@given(markdowns | st.text(max_size=60))
@example("> \t**a**\n> b")
@example("|a|b|\n|-|-|\n|`x|y`|")
def test_it_never_raises_and_loses_no_word(markdown: str) -> None:
    with capture_logs() as logs:
        shown = styled(markdown)
    assert logs == []
    # Words can come to stand side by side, and an entity becomes its character.
    said = re.sub(r"&#?\w+;|<br>", " ", markdown)
    assert not [letter for letter in Counter(said) - Counter(shown) if letter.isalnum()]
    assert [word for word in words(said) if word not in shown] == []
    assert len(shown) <= 2 * len(markdown) + 10


@given(st.text("abc xyz.,:;?()'\"\n\t1234567890äß", max_size=200))
def test_text_without_markup_is_not_changed(text: str) -> None:
    assert styled(text) == text


@given(markdowns)
def test_what_comes_before_keeps_nothing_from_being_converted(markdown: str) -> None:

    shown = styled(f"{markdown.replace('`', '').replace('~~~', '')}\n\nplain **bold** text")
    assert shown.endswith("plain *bold* text") or "    " in markdown or "\t" in markdown


@pytest.mark.parametrize(
    "piece",
    [
        *("[", "*a ", "a*", "_*", "![", "`a", ">", "> > ", "- ", "|a", "&", "<", "\\", "[a](b"),
        *("~~a~~ ", "***a** b* ", "[a]: u\n", "> *a*\n", "- *a*\n", "|*1*|2|\n", "# a\n"),
    ],
)
def test_hostile_text_is_converted_up_to_a_bound(
    piece: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted in what the parser is given, not in time."""
    given_: list[int] = []
    parse = styling._parser().parse
    monkeypatch.setattr(
        type(styling._parser()),
        "parse",
        lambda _self, text: (given_.append(len(text)), parse(text))[1],
    )
    for count in (10, MOST_MARKUP, LONGEST):
        text = piece * count
        styled(text)
        if len(text) > LONGEST or len(re.findall(r"[*_~`#|\\&\[\]<!]", text)) > MOST_MARKUP:
            assert styled(text) == text
    assert all(size <= LONGEST for size in given_)


def test_a_fault_of_the_parser_leaves_the_text_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> object:
        raise RecursionError

    monkeypatch.setattr(styling, "_parser", broken)
    with capture_logs() as logs:
        assert styled("**a**") == "**a**"
    assert [line["event"] for line in logs] == ["cannot convert a text from Markdown"]


def test_the_parser_is_loaded_when_it_is_needed() -> None:
    program = (
        "import sys; from component.link.messages.styling import styled; styled('2 x 3');"
        "assert 'markdown_it' not in sys.modules; styled('**x**');"
        "assert 'markdown_it' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(
    ("markdown", "shown"),
    [
        ("**强调\uff1a**内容", "*强调\uff1a*内容"),
        ("这是**强调**的", "这是 *强调*的"),
        ("这是**“强调”**的内容", "这是 *“强调”*的内容"),
        ("请注意\uff0c**「重点」**。", "请注意\uff0c *「重点」*。"),
        ("\uff08**强调**\uff09", "\uff08*强调*\uff09"),
        ("これは**「強調」**です。", "これは *「強調」*です。"),
        ("これは*強調。*次", "これは _強調。_次"),
        ("강조 **강조(强調)**는", "강조 *강조(强調)*는"),
        ("**注意\uff1a**see below", "*注意\uff1a*see below"),
        ("~~删除。~~下", "~删除。~下"),
        ("数量 3 * 4 * 5 个\uff0c__init__", "数量 3 * 4 * 5 个\uff0c__init__"),
        ("foo**bar**baz", "foo**bar**baz"),
    ],
)
def test_emphasis_beside_chinese_japanese_and_korean(markdown: str, shown: str) -> None:
    assert styled(markdown) == shown
