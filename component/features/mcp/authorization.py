"""Authorization at MCP servers over HTTP: OAuth 2.1 with client credentials (RFC 6749 §4.4).

The service has an account of its own at the authorization server. Its tokens are kept in memory,
for each connection, and requested again after a restart; nobody has to agree in a browser.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

if TYPE_CHECKING:
    import httpx2

    from component.features.mcp.settings import McpOAuth


def client_credentials(url: str, entry: McpOAuth) -> httpx2.Auth:
    """Return what authorizes requests to the server at `url`.

    The credentials are only sent to the authorization server `entry.issuer`, whatever the MCP
    server says. The scopes are those that the MCP server names (MCP 2025-11-25, Authorization).
    """
    return ClientCredentialsOAuthProvider(
        server_url=url,
        storage=_Tokens(),
        client_id=entry.client_id,
        client_secret=entry.client_secret.get_secret_value(),
        issuer=entry.issuer,
    )


class _Tokens:
    """Implements the SDK's `TokenStorage` in memory."""

    def __init__(self) -> None:
        self._tokens: OAuthToken | None = None
        self._client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self._tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self._client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._client = client_info
