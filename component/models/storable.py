"""Texts of models, made fit to be stored and sent."""

from xep.characters import without_forbidden


def storable(text: str) -> str:
    """Replace what neither XML nor a database can carry by U+FFFD.

    A server that counts in UTF-16 may send the halves of a surrogate pair in two pieces: they are
    joined.
    """
    fit = without_forbidden(text)
    if fit == text:
        return text
    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return without_forbidden(joined)
