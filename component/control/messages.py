"""The messages on the control socket: one JSON object per line, requests and answers alternate."""

import msgspec

MAX_REQUEST_BYTES = 65_536
MAX_ANSWER_BYTES = 64 * 1024 * 1024


class ControlRequest(msgspec.Struct, frozen=True):
    """Run a command, with its parameters as a JSON object."""

    command: str
    params: msgspec.Raw = msgspec.Raw(b"{}")


class ControlAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result: a text for people and a value in JSON, or the sentence of an error.

    `param` is the parameter that the error is about. `unknown` says that the command does not
    exist.
    """

    text: str = ""
    value: msgspec.Raw = msgspec.Raw(b"null")
    error: str | None = None
    param: str | None = None
    unknown: bool = False
