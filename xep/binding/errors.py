"""What can go wrong between an XML element and its Struct."""


class DeclarationError(TypeError):
    """A Payload class is declared wrongly. Raised when the class is first used, never by input."""


_LONGEST = 500


class ContentError(ValueError):
    """An element does not fit its declaration. The text is a sentence fit for the wire.

    Attributes:
        element: local name of the element that does not fit.
        reason: what is wrong with it, without the element's name.
    """

    def __init__(self, element: str, reason: str) -> None:
        self.element = element
        # It may quote what a peer sent; it goes back to the peer, and into logs.
        self.reason = reason if len(reason) <= _LONGEST else reason[:_LONGEST] + "…"
        super().__init__(f"<{element}/>: {self.reason}")


class EncodingError(ValueError):
    """A value has no form on the wire, such as a number that is not finite."""
