"""A stanza from the target for checks: decoded, and as an element tree."""

from functools import cached_property
from typing import TypeVar
from xml.etree.ElementTree import Element, fromstring

from xep.binding import Payload
from xep.fluux_agent.errors import CONDITIONS
from xep.fluux_agent.errors import NAMESPACE as ERRORS
from xep.stanza import Incoming
from xep.stanza_error import NAMESPACE as STANZAS
from xep.stanza_error import StanzaError

P = TypeVar("P", bound=Payload)
LANG = "{http://www.w3.org/XML/1998/namespace}lang"
CLIENT = "{jabber:client}"


class Received:
    """One stanza from the target.

    Attributes:
        head: the stanza; its payloads are decoded on demand.
        xml: its whole text.
        answers: the address of the IQ that it answers; None if it is not an answer.
    """

    def __init__(self, head: Incoming, answers: str | None = None) -> None:
        self.head = head
        self.xml = head.forward()
        self.answers = answers

    @cached_property
    def tree(self) -> Element:
        """Return the stanza as parsed by the standard library, independent of `xep`."""
        # It has passed the checks of a stream, which refuses DTDs and entities.
        return fromstring(f"<s xmlns='jabber:client'>{self.xml}</s>")[0]  # noqa: S314

    @property
    def is_error(self) -> bool:
        """Whether it is of type error."""
        return self.head.type == "error"

    @property
    def error(self) -> StanzaError:
        """Return the stanza error."""
        return self.head.error(CONDITIONS)

    @property
    def error_element(self) -> Element | None:
        """Its ``<error/>``."""
        return self.tree.find(f"{CLIENT}error")

    @property
    def stanza_conditions(self) -> list[str]:
        """The names of the RFC's conditions in the error."""
        return self._conditions(STANZAS, leave_out="text")

    @property
    def agent_conditions(self) -> list[str]:
        """The names of the agent protocol's conditions in the error."""
        return self._conditions(ERRORS)

    def payload(self, cls: type[P]) -> P | None:
        """Return the first child that is a ``cls``. Raises ContentError when it does not match."""
        return self.head.payload(cls)

    @property
    def body(self) -> str | None:
        """The text of a message."""
        return self.head.text_of("body")

    @property
    def thread(self) -> str | None:
        """The thread of a message."""
        return self.head.text_of("thread")

    def _conditions(self, namespace: str, leave_out: str = "") -> list[str]:
        error = self.error_element
        names = [] if error is None else [child.tag for child in error]
        spaced = [name[1:].rpartition("}") for name in names if name.startswith("{")]
        return [local for ns, _, local in spaced if ns == namespace and local != leave_out]
