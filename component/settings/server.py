"""The section about the XMPP server, and how the agent is connected to it."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SecretStr, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from component.settings.kinds import Count, Domain, Port, Seconds, Section, refusal


def _component_only(value: object) -> object:
    if value == "client":
        raise PydanticCustomError(
            "client_mode",
            'is "client": running as an ordinary account comes with the `client` extra in a later '
            'release; use mode = "component" and give the agent a domain of its own',
        )
    return value


class Server(Section):
    """The XMPP server and the component connection to it (XEP-0114)."""

    host: str = Field(
        default="localhost",
        min_length=1,
        description="Name or address of the machine where the XMPP server listens for components.",
    )
    port: Port = Field(
        default=5275,
        description="TCP port for components. Prosody listens on 5347 unless told otherwise; "
        "Openfire and most ejabberd examples use 5275.",
    )
    mode: Annotated[Literal["component"], BeforeValidator(_component_only)] = Field(
        default="component",
        description="How the agent is attached: as a component with a domain of its own. "
        '"client" (an ordinary account) comes in a later release.',
    )
    component_domain: Domain = Field(
        examples=["agent.example.com"],
        description="The agent's own domain, as the server's configuration names it.",
    )
    component_secret: SecretStr = Field(
        min_length=1,
        examples=["${AGENT_SECRET}"],
        description="The secret shared with the server. Keep it out of this file: `${NAME}` is "
        "read from the environment, or from the file of the same name that ends in .env.",
    )
    tls: bool = Field(
        default=False,
        description="Use TLS from the first byte. Needed when the way to the server is not "
        "private: without it the stanzas travel in the clear.",
    )
    tls_ca: Path | None = Field(
        default=None,
        examples=["/etc/ssl/private-ca.pem"],
        description="File of PEM certificates to trust instead of the system's. Only with tls.",
    )
    tls_verify: bool = Field(
        default=True,
        description="Check the server's certificate and name. Turn it off for tests only.",
    )
    tls_server_name: str | None = Field(
        default=None,
        min_length=1,
        examples=["xmpp.example.com"],
        description="Name to expect in the server's certificate; host unless set. Only with tls.",
    )
    connect_timeout_s: Seconds = Field(
        default=10,
        description="Seconds to wait for a connection, TLS and handshake together.",
    )
    keepalive_s: Seconds = Field(
        default=30,
        description="Seconds without anything sent after which one space is sent, so that "
        "firewalls keep the connection open.",
    )
    read_timeout_s: Seconds = Field(
        default=90,
        description="Seconds of silence from the server after which a probe is sent: an IQ to the "
        "agent's own domain, which the server sends back.",
    )
    probe_timeout_s: Seconds = Field(
        default=15,
        description="Seconds to wait for the probe before the connection counts as dead.",
    )
    reconnect_min_s: Seconds = Field(
        default=1,
        description="Longest wait in seconds before the first attempt to reconnect. It doubles "
        "with each failure; each wait is drawn at random up to it.",
    )
    reconnect_max_s: Seconds = Field(
        default=60,
        description="Longest wait in seconds before any attempt to reconnect.",
    )
    drain_s: Seconds = Field(
        default=15,
        description="Seconds given to work in flight when the service is told to stop.",
    )
    max_stanza_bytes: Count = Field(
        default=262144,
        ge=10000,  # RFC 6120 §13.12: no limit may be below this
        description="Largest stanza accepted, in bytes as received; at least 10000.",
    )
    max_depth: Count = Field(
        default=64,
        ge=8,
        description="Deepest nesting of elements accepted in a stanza.",
    )
    max_elements: Count = Field(
        default=10000,
        ge=64,
        description="Largest number of elements accepted in a stanza.",
    )

    @field_validator("reconnect_max_s")
    @classmethod
    def _in_order(cls, value: float, info: ValidationInfo) -> float:
        if value < info.data.get("reconnect_min_s", value):
            raise refusal("must not be smaller than server.reconnect_min_s")
        return value

    @field_validator("tls_ca", "tls_server_name", "tls_verify")
    @classmethod
    def _only_with_tls(cls, value: Any, info: ValidationInfo) -> Any:
        # Somebody who names a certificate believes that it is checked.
        unset = value is None or value is True
        if not unset and info.data.get("tls") is False:
            raise refusal("has no effect while server.tls is false: set tls = true or remove it")
        return value
