"""What `xmpp-agent doctor` says of the HTTP listener."""

import socket
import sys
from typing import Any

import pytest

from component.app.features import load_skills, make_settings
from component.config import Server
from component.features.http_listener.feature import HttpListenerFeature

pytestmark = pytest.mark.anyio


async def said(port: int, **more: Any) -> tuple[str, str]:
    server = Server(component_domain="agent.example.com", component_secret="s" * 16)  # type: ignore[arg-type]
    settings = make_settings(server=server, http={"port": port, **more})
    (check,) = await HttpListenerFeature(settings).checks(load_skills(settings))
    assert check.name == "http"
    return check.verdict, check.text


@pytest.fixture
def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
    return port


async def test_an_address_that_can_be_used_is_ok(free_port: int) -> None:
    assert (await said(free_port))[0] == "ok"


async def test_a_port_that_is_in_use_is_a_failure() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        verdict, text = await said(taken.getsockname()[1])
    assert verdict == "failed"
    assert "Set host and port in [http]" in text


async def test_a_public_address_without_tls_is_a_warning(free_port: int) -> None:
    verdict, text = await said(free_port, host="0.0.0.0")
    assert (verdict, "no TLS" in text) == ("warning", True)


async def test_without_the_extra_nothing_can_be_received(
    free_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "hypercorn", None)
    verdict, text = await said(free_port)
    assert (verdict, "pip install" in text) == ("failed", True)
