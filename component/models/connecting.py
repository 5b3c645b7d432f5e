"""Connections to hosted models, by the client of a vendor's SDK.

The SDKs take 0.4 and 1.3 seconds to import, so they are imported in a worker thread before the
first request, never when the service starts.
"""

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

import msgspec

from component.models.adapter import SDK
from component.models.catalog import Target

if TYPE_CHECKING:
    import openai

_CONNECT_S = 10.0


class Connection(msgspec.Struct, frozen=True):
    """A client for one model, and the SDK that it belongs to. Both SDKs are generated from the same
    templates: their clients and exceptions have the same names.
    """

    sdk: ModuleType
    client: "openai.AsyncOpenAI"


def connect(target: Target, sdk: SDK) -> Connection:
    """Load the SDK and make a client for a model. Blocks for a second and more."""
    import httpx2  # noqa: PLC0415 - see above

    from component.models.http_client import Client  # noqa: PLC0415

    module = importlib.import_module(sdk)
    make: Any = module.AsyncOpenAI if sdk == "openai" else module.AsyncAnthropic
    headers = {"Accept-Encoding": "identity"}
    if sdk == "anthropic" and not target.official:
        # The SDK sends the key as a token; gateways and compatible servers know this field.
        headers["X-Api-Key"] = target.where.key or "none"
    client = make(
        base_url=target.base_url,
        # Without one, the SDK uses the key in the environment, which may belong to another address.
        api_key=target.where.key or "none",
        max_retries=0,
        # How long an answer may take is for `component.models.patience` to decide.
        timeout=httpx2.Timeout(None, connect=min(_CONNECT_S, target.choice.timeout_s)),
        default_headers=headers,
        http_client=Client(
            # A proxy of the environment knows nothing of this machine.
            trust_env=not target.is_loopback,
            # The key goes where the settings say and nowhere else.
            follow_redirects=False,
            # Reading all certificates takes long, and without TLS there are none to check.
            verify=target.base_url.startswith("https:"),
            socket=target.socket,
        ),
    )
    return Connection(module, client)
