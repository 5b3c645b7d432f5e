"""The interface of dialects for the connection to a hosted model: the bytes of a request, and a
reader of the answer. No HTTP, no retries.
"""

from collections.abc import Mapping
from typing import Literal, Protocol, TypeAlias

from component.models.answer_draft import AnswerDraft
from component.models.faults import Fault
from component.models.protocol import ModelRequest, OnText
from component.models.tool_names import ToolNames
from component.models.usage import Figures, Reported

SDK: TypeAlias = Literal["openai", "anthropic"]
"""The vendor's SDK by which requests are sent: the name of its package."""


class AnswerReader(Protocol):
    """Reads one answer into its `draft`.

    Both methods raise BadJSONError, TooMuchError, and ProviderFaultError if the provider reports a
    fault in place of (the rest of) the answer.
    """

    @property
    def draft(self) -> AnswerDraft:
        """The answer so far."""

    def event(self, data: bytes) -> bool:
        """Read the data of one server-sent event; True if it is the last one."""

    def document(self, data: bytes) -> None:
        """Read an answer that came as one JSON document."""

    def reported(self, figures: Figures) -> Reported:
        """Return tokens and cost as the provider reports them; `figures` reads `draft.used`."""


class Adapter(Protocol):
    """One dialect, for one model. It remembers which parameters the model has rejected.

    Attributes:
        sdk: the SDK that sends its requests.
        path: the path of requests, below the base URL.
        headers: headers of each request in addition to those of the SDK.
        origin: identifies dialect and model in opaque parts.
    """

    sdk: SDK
    path: str
    headers: Mapping[str, str]
    origin: str

    def body(self, request: ModelRequest, names: ToolNames) -> bytes:
        """Make the body of a streaming request, as JSON. Equal requests have equal bytes."""

    def reader(
        self, request: ModelRequest, names: ToolNames, on_text: OnText | None
    ) -> AnswerReader:
        """Make a reader for one answer to this request."""

    def leave_out(self, fault: Fault) -> bool:
        """Stop sending what the provider rejects; False if the request needs it."""


class ProviderFaultError(Exception):
    """A fault that a provider reports inside of an answer."""

    def __init__(self, fault: Fault) -> None:
        """Store the reported fault."""
        super().__init__(fault.message)
        self.fault = fault
