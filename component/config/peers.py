"""The sections about peers: agents elsewhere that use skills of this service, and the other way
round.
"""

from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from component.config.kinds import (
    Confirm,
    Count,
    Domains,
    Seconds,
    Section,
    address,
    different_names,
    refusal,
)

_NAME: Final = r"[A-Za-z][A-Za-z0-9_-]{0,31}"


def _address(value: str) -> str:
    jid = address(value)
    if jid.resource is not None:
        raise refusal(f"must be without a resource: {jid.bare}")
    return str(jid)


class Peer(Section):
    """An agent on another server. Without `skills` and `offers`, neither uses the other. See
    docs/how-to/federation.md.
    """

    name: Annotated[str, Field(pattern=f"^{_NAME}$")] = Field(examples=["research"])
    """Its name here. Its skills are named `NAME.skill`."""
    jid: Annotated[str, AfterValidator(_address)] = Field(examples=["agent.example.net"])
    """Bare JID of the agent. A domain and `assistant@` that domain are one agent."""
    skills: tuple[str, ...] = Field(default=(), examples=[["sources", "report.*"]])
    """Skills of the peer to offer here, by their names there; `*` and `?` as in policy rules."""
    offers: tuple[str, ...] = Field(default=(), examples=[["summarise"]])
    """Skills of this service that the peer sees and may execute; `*` and `?` as in policy rules.
    Skills that come from peers are never offered to another one.
    """
    delegates: tuple[str, ...] = Field(default=(), examples=[["archive.search"]])
    """Skills of other peers that work for this peer may use, by their names here. The peer itself
    does not see them.
    """
    origins: Domains | None = Field(default=None, examples=[["example.net"]])
    """Domains in whose names the peer may ask: it says for whom it works, and other domains are
    refused. Default: the domain of `jid` without its first label. `["*"]` means every domain.
    """
    read_only: tuple[str, ...] = Field(default=(), examples=[["sources"]])
    """Skills of the peer that change nothing. All others count as destructive, so people are asked
    before they are called.
    """
    requires: Literal["grant"] | None = Field(default=None, examples=["grant"])
    """`"grant"`: the peer is served only with a signed grant of each agent in the path of the work.
    Grants that come with a request are verified in any case.
    """
    asks_back: Literal["never", "costly", "always"] = "costly"
    """When the agent at the beginning of the path is asked whether its grant still holds, before
    work of the peer begins: `costly` before skills that cost something or are destructive.
    """
    onward: tuple[str, ...] = Field(default=("*",), examples=[["archive.search"]])
    """Skills that the peer may use at other agents for work of this service: names, or beginnings
    that end in `*`. With an empty list it must not pass the work on.
    """
    confirm: Confirm | None = Field(default=None, examples=["always"])
    """When a person is asked before a skill of the peer is called, instead of policy.confirm. A
    rule of the policy that matches the skill comes first. With `never`, this agent does not ask in
    work for other agents either: the peer asks itself before it does something destructive.
    """
    data: tuple[Literal["peer", "web", "file"], ...] | None = Field(
        default=None, examples=[["web"]]
    )
    """Data of others that a model may pass on to the peer after reading it: of other agents, the
    web, files. A model that has read other data must not call the peer. Default: what policy.flows
    says.
    """
    timeout_s: Seconds = 3600
    """Seconds for one call of a skill of the peer. The peer gets this as the deadline."""
    unreachable_s: Seconds = 60
    """Seconds for which a call waits for a peer that cannot be reached, before it fails."""
    call_usd: Annotated[float, Field(ge=0)] | None = Field(default=None, examples=[0.5])
    """US dollars that one call of a skill of the peer may cost; its request says so. Default: what
    is left of the budget of the work that the call is for.
    """
    call_tokens: Count | None = Field(default=None, examples=[60000])
    """Tokens of language models that one call may cost, likewise."""
    day_usd: Annotated[float, Field(ge=0)] | None = Field(default=None, examples=[5])
    """US dollars that all calls of a day (UTC) may cost. A call of which the peer does not say what
    it has cost counts with all that it was allowed.
    """
    day_tokens: Count | None = Field(default=None, examples=[1000000])
    """Tokens that all calls of a day may cost, likewise."""
    concurrency: Count = 16
    """Maximum number of tasks of the peer that run here at the same time."""
    open_tasks: Count = 500
    """Maximum number of open tasks of the peer for all people together: waiting, running, or asking
    a question. For one person it is tasks.per_principal. Further requests are rejected with
    `resource-constraint` and a hint when to retry.
    """

    @field_validator("onward")
    @classmethod
    def _has_patterns(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for each in value:
            if not each or "*" in each[:-1]:
                raise refusal(f"has {each!r}: write a name, or a beginning that ends in *")
        return value

    @model_validator(mode="after")
    def _has_a_domain_for_origins(self) -> Self:
        if self.origins is None:
            parent = self.jid.rpartition("@")[2].partition(".")[2]
            if self.offers and not parent:
                raise refusal(
                    "is needed, because the domain of jid has only one label: name the domains in"
                    ' whose names the peer may ask, or ["*"]',
                    key="origins",
                )
        return self

    @property
    def believed_domains(self) -> Domains:
        """The domains in whose names the peer may ask, with the default applied."""
        if self.origins is not None:
            return self.origins
        parent = self.jid.rpartition("@")[2].partition(".")[2]
        return (parent,) if parent else ()


def _different(peers: tuple[Peer, ...]) -> tuple[Peer, ...]:
    different_names("peers")(peers)
    addresses: dict[str, str] = {}
    for peer in peers:
        local, _, domain = peer.jid.rpartition("@")
        other = addresses.setdefault(f"{local or 'assistant'}@{domain}", peer.name)
        if other != peer.name:
            raise refusal(f"has {other!r} and {peer.name!r} with one address: remove one of them")
    return peers


Peers = Annotated[tuple[Peer, ...], AfterValidator(_different)]
