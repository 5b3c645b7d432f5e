"""What goes over the control socket: one JSON object a line, a request and its answer in turn."""

import msgspec

MAX_REQUEST_BYTES = 65_536
MAX_ANSWER_BYTES = 64 * 1024 * 1024


class ControlRequest(msgspec.Struct, frozen=True):
    """Run a command, with its parameters as a JSON object."""

    command: str
    params: msgspec.Raw = msgspec.Raw(b"{}")


class ControlAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What came of it: a text for people and a value in JSON, or the sentence of an error.

    `param` is the parameter that the error is about. `unknown` says that there is no such command.
    """

    text: str = ""
    value: msgspec.Raw = msgspec.Raw(b"null")
    error: str | None = None
    param: str | None = None
    unknown: bool = False
