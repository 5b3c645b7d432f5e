"""Checks the words of documents and docstrings by the Vale style in `styles/`.

    python -m tests.tools.prose [FILE...]

Vale itself reports the same, but no package index has it. Of its format for rules, this reads
`existence` and `substitution` with `tokens`, `swap`, `ignorecase` and `message`.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from configparser import ConfigParser
from pathlib import Path

import msgspec
from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parents[2]
_LITERAL = re.compile(r"(`+).+?\1|https?://\S+", re.DOTALL)


class Rule(msgspec.Struct):
    """A rule: `tokens` are patterns that must not occur, `swap` has what to write instead."""

    message: str
    extends: str
    level: str
    ignorecase: bool = False
    tokens: list[str] = []
    swap: dict[str, str] = {}

    def reports(self, text: str) -> Iterator[tuple[int, str]]:
        """Yield the offset of each match, and the message."""
        flags = re.IGNORECASE if self.ignorecase else 0
        one_of = "|".join([*self.tokens, *self.swap])
        for match in re.finditer(rf"\b(?:{one_of})\b", text, flags):
            found = match[0]
            instead = (to for word, to in self.swap.items() if re.fullmatch(word, found, flags))
            yield match.start(), self.message % (*instead, found)


def rules() -> list[Rule]:
    """Read the rules of the styles that `.vale.ini` names."""
    settings = ConfigParser()
    settings.read_string("[all]\n" + (ROOT / ".vale.ini").read_text())
    directory = ROOT / settings["all"]["StylesPath"]
    styles = settings["*.{md,py}"]["BasedOnStyles"].split(",")
    files = [file for style in styles for file in sorted((directory / style.strip()).glob("*.yml"))]
    return [msgspec.yaml.decode(file.read_bytes(), type=Rule) for file in files]


def passages(name: str, text: str) -> Iterator[tuple[int, str]]:
    """Yield the prose of a Markdown or Python file without literals, with its first line."""
    for line, passage in (_of_python if name.endswith(".py") else _of_markdown)(text):
        without = _LITERAL.sub(lambda literal: "\n" * literal[0].count("\n"), passage)
        yield line, re.sub(r"\n[ \t]+", "\n", without)  # for rules about adjacent words


def _of_markdown(text: str) -> Iterator[tuple[int, str]]:
    for token in MarkdownIt().enable("table").parse(text):
        if token.type == "inline" and token.map is not None:
            yield token.map[0] + 1, token.content


def _of_python(text: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.lineno, str(node.value.value)


def check(name: str, text: str, by: Iterable[Rule]) -> Iterator[str]:
    """Yield a line for each word of a file that a rule reports."""
    for first, passage in passages(name, text):
        for rule in by:
            for offset, message in rule.reports(passage):
                yield f"{name}:{first + passage.count(chr(10), 0, offset)}: {message}"


def main() -> None:
    """Check the given files; default: all that belong to the project."""
    listed = ["git", "ls-files", "-z", "*.md", "*.py"]
    tracked = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names, by = sys.argv[1:] or tracked.rstrip("\0").split("\0"), rules()
    texts = {name: (ROOT / name).read_text() for name in names if (ROOT / name).exists()}
    found = [line for name, text in texts.items() for line in check(name, text, by)]
    print("\n".join([*found, f"{len(texts):,} files, {len(found)} words to correct"]))
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
