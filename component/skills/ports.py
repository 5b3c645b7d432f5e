"""What a skill does through its Context outside itself: HTTP requests, memories, messages.

Each works the same in a confined process, in the service and in tests; what differs is the host
function behind it. A credential is named in a request: the service adds it, and the skill never
sees its value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from component.skills.errors import UsageError
from component.skills.host import (
    DeleteMemory,
    HostFunctions,
    HttpRequest,
    HttpResponse,
    ListMemory,
    ReadMemory,
    SendMessage,
    WriteMemory,
)

Headers = Mapping[str, str]
_JSON: Final = ("Content-Type", "application/json")
_FORM: Final = ("Content-Type", "application/x-www-form-urlencoded")
_TEXT: Final = ("Content-Type", "text/plain; charset=utf-8")


class _Port:
    __slots__ = ("_functions",)

    def __init__(self, functions: HostFunctions) -> None:
        self._functions = functions


class ContextHttp(_Port):
    """Makes HTTP requests to the servers that the manifest declares (`network`).

    All methods return the response whatever its status, and raise HostError, whose message says
    what went wrong: the server cannot be reached, takes too long, answers too much, or the
    credential is not set or not for that server. They raise CapabilityMissing for a server or a
    credential that is not declared. Redirects are followed within the declared servers.

    `credential` names a declared credential, which the service adds to the request.
    """

    async def get(
        self,
        url: str,
        *,
        params: Mapping[str, str | int | float] | None = None,
        headers: Headers | None = None,
        credential: str = "",
    ) -> HttpResponse:
        """Make a GET request; `params` are added to the query of the URL."""
        if params:
            url += ("&" if "?" in url else "?") + urlencode(params)
        return await self.request("GET", url, headers=headers, credential=credential)

    async def post(
        self,
        url: str,
        *,
        json: object = msgspec.UNSET,
        form: Mapping[str, str] | None = None,
        body: bytes | str = b"",
        headers: Headers | None = None,
        credential: str = "",
    ) -> HttpResponse:
        """Make a POST request with a value as JSON, with fields of a form, or with a content."""
        return await self.request(
            "POST", url, json=json, form=form, body=body, headers=headers, credential=credential
        )

    async def request(
        self,
        method: str,
        url: str,
        *,
        json: object = msgspec.UNSET,
        form: Mapping[str, str] | None = None,
        body: bytes | str = b"",
        headers: Headers | None = None,
        credential: str = "",
    ) -> HttpResponse:
        """Make a request with any method. Raises UsageError for several contents."""
        if (json is not msgspec.UNSET) + (form is not None) + bool(body) > 1:
            raise UsageError("A request has one content: pass json, form or body.")
        said = {name.lower() for name in headers or {}}
        content, kind = _content(json, form, body)
        more = () if kind is None or "content-type" in said else (kind,)
        return await self._functions.perform(
            HttpRequest(
                method=method,
                url=url,
                headers=(*(headers or {}).items(), *more),
                body=content,
                credential=credential,
            )
        )


class ContextMemory(_Port):
    """Reads and writes what the skill remembers (`memory_read`, `memory_write`): texts by keys.

    The memories belong to this skill and the caller. All methods raise HostError if the memory is
    not available or full, and CapabilityMissing for a change where only reading is declared.
    """

    async def get(self, key: str) -> str | None:
        """Return a value, or None."""
        return await self._functions.perform(ReadMemory(key))

    async def put(self, key: str, value: str) -> None:
        """Store a value of up to 64 KiB under a key of up to 200 characters."""
        await self._functions.perform(WriteMemory(key, value))

    async def delete(self, key: str) -> None:
        """Delete a value, if there is one."""
        await self._functions.perform(DeleteMemory(key))

    async def keys(self, prefix: str = "") -> list[str]:
        """Return the keys that begin with a text, in order."""
        return await self._functions.perform(ListMemory(prefix))


class ContextXmpp(_Port):
    """Sends messages to the addresses that the manifest declares (`xmpp`)."""

    async def send(self, to: str, text: str, *, key: str | None = None) -> None:
        """Send a message to a bare JID.

        `key` identifies the message: a second one with the same key is the same message, which the
        recipient's client shows once. In a step, pass the key of the step. Without one, the
        messages of a call are counted.

        Raises HostError if the recipient does not want to be contacted, or too much was sent, and
        CapabilityMissing for an address that is not declared.
        """
        await self._functions.perform(SendMessage(to, text, key))


def _content(json: object, form: Mapping[str, str] | None, body: bytes | str) -> tuple[bytes, Any]:
    if json is not msgspec.UNSET:
        return msgspec.json.encode(json), _JSON
    if form is not None:
        return urlencode(form).encode(), _FORM
    if isinstance(body, str):
        return body.encode(), _TEXT if body else None
    return body, None
