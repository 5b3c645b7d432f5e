"""Quotations within the text, as clients without replies write them (XEP-0393 §5.1.3).

Conversations and Monal quote a message by lines at the beginning of the text that start with `>`,
and do not say which message it is. The author's own text follows.
"""

from typing import Final

ANSWER_LINE: Final = "Please answer"
"""Begins the sentence of a question that says how to answer it, and until when."""
_MARK: Final = ">"


def split_quotation(text: str) -> tuple[str, str]:
    """Return the quoted lines at the beginning of a text, without their marks, and the rest."""
    lines = text.split("\n")
    count = next((at for at, line in enumerate(lines) if not line.startswith(_MARK)), len(lines))
    quoted = "\n".join(line.removeprefix(_MARK).strip() for line in lines[:count])
    return quoted, "\n".join(lines[count:]).strip()


def is_quoted(body: str, quoted: str) -> bool:
    """Return whether a quotation quotes a question with that body.

    It may omit the end of the question, and have a line with a name or a time before it. The expiry
    is ignored, because its wording changes over time.
    """
    asked, copied = _words(body), _words(quoted)
    return bool(asked and copied) and (copied in asked or asked in copied)


def _words(text: str) -> str:
    return " ".join(text.partition(ANSWER_LINE)[0].split())
