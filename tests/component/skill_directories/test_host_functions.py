"""Requests of code in a sandbox: their credentials."""

from __future__ import annotations

from functools import partial

import pytest

from component.http.gate import Access, Headers, HttpGate
from component.skill_directories.host_functions import send_request
from component.skills.errors import CapabilityMissing
from component.skills.host import HostError
from component.skills.host import HttpRequest as HostRequest
from tests.component.http.http_server import plain, serving


class Credentials:
    def headers(self, name: str, url: str) -> Headers:
        if name != "shop":
            raise CapabilityMissing("guest", f"credential:{name}")
        return (("Authorization", "Bearer hush-hush"),)


@pytest.mark.anyio
async def test_the_host_uses_credentials_and_the_guest_never_sees_them() -> None:
    """The server gets the credential; a response that repeats it does not bring it to the guest."""
    async with serving() as server:
        server.answers["echo"] = plain("you sent hush-hush", 200, "X-Echo: Bearer hush-hush")
        access = Access("127.0.0.1", "http", server.port, private=True)
        http = partial(send_request, "guest", HttpGate([access]), Credentials())
        found = await http(HostRequest("GET", server.url("echo"), credential="shop"))
        assert b"Authorization: Bearer hush-hush" in server.requests[0]
        assert found.body == b"you sent [credential]"
        assert "hush" not in str(found.headers)
        with pytest.raises(CapabilityMissing, match="credential:bank"):
            await http(HostRequest("GET", server.url("echo"), credential="bank"))
        without = partial(send_request, "guest", HttpGate([access]), None)
        with pytest.raises(CapabilityMissing, match="credential:shop"):
            await without(HostRequest("GET", server.url("echo"), credential="shop"))
        with pytest.raises(CapabilityMissing, match=r"network:http://127\.0\.0\.2"):
            await http(HostRequest("GET", "http://127.0.0.2/"))
        with pytest.raises(HostError, match="an http or https URL"):
            await http(HostRequest("GET", "ftp://127.0.0.1/"))
