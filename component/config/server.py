"""The section about the XMPP server and the connection to it."""

from typing import Any, Final, Literal

from pydantic import Field, SecretStr, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from component.config.kinds import (
    Count,
    Domain,
    FilePath,
    OwnAccount,
    Port,
    Seconds,
    Section,
    refusal,
    without_brackets,
)

_COMPONENT: Final = ("component_domain", "component_secret")
_CLIENT: Final = ("jid", "password")


class Server(Section):
    """The XMPP server and the connection to it, as a component or as a client."""

    mode: Literal["component", "client"] = "component"
    """How the agent is connected: as a component with its own domain (XEP-0114), or as a client
    with an ordinary account, which needs nothing from the server's admin and has one agent.
    """
    host: str = Field(default="localhost", min_length=1)
    """Name or address of the machine where the XMPP server listens. Default for a client: found by
    srv, or the domain of jid.
    """
    port: Port = 5275
    """TCP port of the server. For a component: Prosody listens on 5347 by default; Openfire and
    most ejabberd examples use 5275. Default for a client: 5222, or 5223 with tls.
    """
    srv: bool = False
    """Look up the servers of the account's domain in DNS (SRV records). Default for a client: true
    unless host, port or tls is set. Only for a client.
    """
    component_domain: Domain | None = Field(default=None, examples=["agent.example.com"])
    """The agent's own domain, as in the server's configuration. A component needs it."""
    component_secret: SecretStr = Field(default=SecretStr(""), examples=["${AGENT_SECRET}"])
    """The secret shared with the server. Keep it out of this file: `${NAME}` is read from the
    environment, or from the file of the same name that ends in .env. A component needs it.
    """
    component_number: Count = 1
    """The number of connections among which ejabberd balances the stanzas for this domain: the
    component_number of its domain_balancing. The agent keeps all of them open, one or more in each
    instance. 1 for every other server, and for ejabberd without domain_balancing.
    """
    jid: OwnAccount | None = Field(default=None, examples=["helper@example.com"])
    """The address of the account. A client needs it."""
    password: SecretStr = Field(default=SecretStr(""), examples=["${AGENT_PASSWORD}"])
    """The password of the account. A client needs it."""
    resource: str = Field(default="agent", min_length=1)
    """Resource that distinguishes this client from others of the same account. Each process needs a
    different one. Only for a client.
    """
    tls: bool = False
    """Use TLS from the first byte. A component needs it when the network to the server is not
    private: without TLS the stanzas are not encrypted. A client uses TLS in any case, by STARTTLS
    unless this is true.
    """
    tls_ca: FilePath | None = Field(default=None, examples=["/etc/ssl/private-ca.pem"])
    """File of PEM certificates to trust instead of the system's. Only with TLS."""
    tls_verify: bool = True
    """Check the server's certificate and name. Turn it off for tests only."""
    tls_server_name: str | None = Field(default=None, min_length=1, examples=["xmpp.example.com"])
    """Name to expect in the server's certificate. Default: host, or the domain of jid for a client.
    Only with TLS.
    """
    connect_timeout_s: Seconds = 10
    """Seconds to wait for a connection, TLS and handshake together."""
    keepalive_s: Seconds = 30
    """Seconds without anything sent after which one space is sent, so that firewalls keep the
    connection open.
    """
    read_timeout_s: Seconds = 90
    """Seconds of silence from the server after which a probe is sent: an IQ to the agent's own
    address, which the server sends back.
    """
    probe_timeout_s: Seconds = 15
    """Seconds to wait for the probe before the connection counts as dead."""
    reconnect_min_s: Seconds = 1
    """Maximum wait in seconds before the first attempt to reconnect. It doubles with each failure;
    each wait is a random time up to it.
    """
    reconnect_max_s: Seconds = 60
    """Maximum wait in seconds before any attempt to reconnect."""
    drain_s: Seconds = 15
    """Seconds that running requests may still take when the service stops."""
    # RFC 6120 §13.12: no limit may be below 10000.
    max_stanza_bytes: Count = Field(default=262144, ge=10000)
    """Largest stanza accepted, in bytes as received; at least 10000."""

    @field_validator("host")
    @classmethod
    def _without_brackets(cls, value: str) -> str:
        return without_brackets(value)

    @field_validator("srv")
    @classmethod
    def _only_for_a_client(cls, value: bool, info: ValidationInfo) -> bool:
        if value and info.data.get("mode") == "component":
            raise refusal('is only for a client: remove it, or set server.mode = "client"')
        return value

    @field_validator("reconnect_max_s")
    @classmethod
    def _in_order(cls, value: float, info: ValidationInfo) -> float:
        if value < info.data.get("reconnect_min_s", value):
            raise refusal("must not be smaller than server.reconnect_min_s")
        return value

    @model_validator(mode="before")
    @classmethod
    def _defaults_of_a_client(cls, data: Any) -> Any:
        if not isinstance(data, dict) or data.get("mode") != "client":
            return data
        defaults: dict[str, Any] = {
            "port": 5223 if str(data.get("tls")).lower() == "true" else 5222
        }
        domain = str(data.get("jid", "")).partition("@")[2]
        if domain:
            defaults["host"] = domain
        defaults["srv"] = not data.keys() & {"host", "port", "tls"}
        return defaults | data

    @field_validator("component_number")
    @classmethod
    def _only_for_a_component(cls, value: int, info: ValidationInfo) -> int:
        if value > 1 and info.data.get("mode") == "client":
            raise refusal('is only for a component: remove it, or set server.mode = "component"')
        return value

    @field_validator(*_COMPONENT, *_CLIENT)
    @classmethod
    def _needed_in_its_mode(cls, value: Any, info: ValidationInfo) -> Any:
        mode = info.data.get("mode")
        if mode is None:
            return value  # the value is already invalid
        empty = not (value.get_secret_value() if isinstance(value, SecretStr) else value)
        if (info.field_name in _CLIENT) == (mode == "client"):
            if empty:
                raise PydanticCustomError("missing", "is missing")
        elif not empty:
            other = "client" if mode == "component" else "component"
            raise refusal(f'has no effect: set mode = "{other}" or remove it')
        return value

    @field_validator("tls_ca", "tls_server_name", "tls_verify")
    @classmethod
    def _only_with_tls(cls, value: Any, info: ValidationInfo) -> Any:
        # A user who names a certificate believes that it is verified.
        unset = value is None or value is True
        if not unset and info.data.get("tls") is False and info.data.get("mode") == "component":
            raise refusal("has no effect while server.tls is false: set tls = true or remove it")
        return value

    @property
    def address(self) -> str:
        """The address that the server knows us by: the component's domain, or the account."""
        found = self.component_domain if self.mode == "component" else self.jid
        assert found is not None, "checked when the settings were created"
        return found

    @property
    def parent_domain(self) -> str:
        """The domain of the account, or the one above the component's; empty if there is none."""
        return self.address.partition("@" if self.mode == "client" else ".")[2]

    @property
    def secret(self) -> str:
        """The component's secret, or the account's password."""
        found = self.component_secret if self.mode == "component" else self.password
        return found.get_secret_value()

    @property
    def uses_tls(self) -> bool:
        """Whether the stream is encrypted: from its first byte with `tls`, else by STARTTLS."""
        return self.tls or self.mode == "client"

    @property
    def certificate_name(self) -> str:
        """The name that the server's certificate must contain: the configured one, else the domain
        for a client (RFC 6120 §13.7.2.1) and the host for a component.
        """
        default = self.host if self.mode == "component" else self.parent_domain
        return self.tls_server_name or default

    @property
    def listener(self) -> str:
        """A name for the server's listener, for people."""
        return "component (XEP-0114) listener" if self.mode == "component" else "client listener"
