"""Errors between an XML element and its Struct."""


class DeclarationError(TypeError):
    """A Payload class has an invalid declaration. Raised when the class is first used, never by
    input.
    """


_LONGEST = 500


class ContentError(ValueError):
    """An element does not match its declaration. The text is a sentence that may be sent to the
    peer.

    Attributes:
        element: local name of the element.
        reason: what is wrong with it, without the element's name.
    """

    def __init__(self, element: str, reason: str) -> None:
        self.element = element
        # It may quote text of the peer; it is sent back to the peer, and logged.
        self.reason = reason if len(reason) <= _LONGEST else reason[:_LONGEST] + "…"
        super().__init__(f"<{element}/>: {self.reason}")


class EncodingError(ValueError):
    """A value cannot be encoded, such as a number that is not finite."""
