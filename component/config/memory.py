"""The sections about memories, and the length of a conversation."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr

from component.config.kinds import Count, Domain, FilePath, Section, different_names, refusal

_RESERVED = frozenset(("private", "all", "documents"))


def _scope_name(value: str) -> str:
    plain = value.isascii() and value.replace("-", "").replace("_", "").isalnum()
    if not plain or value != value.lower() or not value[0].isalpha() or len(value) > 64:
        raise refusal("must be a word of lower-case letters, digits, - and _: `kitchen`")
    if value in _RESERVED:
        raise refusal(f"must not be {value!r}, which has a special meaning: choose another name")
    return value


class MemoryScope(Section):
    """Memories that several people share, with every agent.

    The name `agent` means everybody who may talk with an agent, one scope for each agent; it exists
    without being declared.
    """

    name: Annotated[str, AfterValidator(_scope_name)] = Field(examples=["kitchen"])
    """Name of the scope, in skills and on disk."""
    members: tuple[str, ...] = Field(examples=[["kitchen.example.com", "ann@example.com"]])
    """Bare JIDs and domains whose users see these memories; `["*"]` is everybody who may use the
    agents.
    """
    writers: tuple[str, ...] | None = Field(default=None, examples=[["ann@example.com"]])
    """Members who may also store memories, and delete those that others have stored. Default: all
    members.
    """


class Memory(Section):
    """The memories of the agents about each person, in files and on PubSub nodes."""

    backend: Literal["markdown"] = "markdown"
    """How memories are stored: in files that people can read and edit."""
    store: Literal["files", "pep", "both"] = "both"
    """Where the private memories of people are stored. files: only in the directory. pep: on a
    PubSub node of each person, who can read, correct and delete them with any client for it; the
    files are a copy, and changes made to them by hand are undone. both: on the node and in the
    files, and changes of either count.
    """
    home: Literal["agent", "person"] = "agent"
    """Where the PubSub node of a person is. agent: at the address of the agent, with the person as
    its owner. person: in the person's own account (XEP-0163), where the person must allow the agent
    to publish, or consent to it where the server permits it; see docs/how-to/memory-nodes.md.
    """
    privileged_domains: tuple[Domain, ...] | None = Field(default=None, examples=[["example.com"]])
    """Domains whose server may let the agent use the memory node in an account on behalf of its
    owner (XEP-0356); what other domains grant is ignored. Each person has to consent, too. Only
    with home = person. Default: the domain above component_domain.
    """
    reconcile_s: Annotated[float, Field(ge=10)] = 900.0
    """How often all memories are compared with their nodes, in seconds. Servers announce most
    changes; changes that they do not announce are only found so.
    """
    encryption_keys: tuple[SecretStr, ...] = ()
    """Keys that encrypt the content of memories on the nodes, for nodes on servers that others
    operate: 32 bytes each, in URL-safe base64. The first key encrypts, all of them decrypt. People
    can still see which memories exist, delete them and replace them.
    """
    path: FilePath | None = Field(default=None, examples=["./data/memory"])
    """Directory of the files; created if it does not exist. The directory of an existing Fluux
    Agent can be used unchanged. Default: `memory` in storage.path.
    """
    recall: Annotated[int, Field(ge=0, le=50)] = 5
    """Maximum number of memories that are sent to the model with a message."""
    item_bytes: Count = 65536
    """Maximum size in bytes of one memory, including its title."""
    items_per_principal: Count = 100000
    """Maximum number of memories per principal and per scope."""
    bytes_per_principal: Count = 67108864
    """Maximum size in bytes of a file of memories, including earlier versions."""
    versions: Count = 100
    """Maximum number of versions of one memory; the oldest are removed."""
    learn_after_mins: Annotated[int, Field(ge=0)] = 15
    """Minutes after the last message of a conversation until the model is asked for facts worth
    keeping, which are written to `user.md` and `knowledge.jsonl`. 0 means never.
    """
    vectors: Literal["off", "local"] = "off"
    """Search by meaning in memories and documents: local uses a multilingual model in a child
    process (the `vectors` extra).
    """
    scopes: Annotated[tuple[MemoryScope, ...], AfterValidator(different_names("scopes"))] = ()


class Session(Section):
    """One conversation of a person with an agent."""

    idle_timeout_mins: Annotated[int, Field(ge=0)] = 240
    """Minutes of silence after which the next message starts a new conversation; the old one is
    archived in `sessions/`. 0 means never.
    """
    max_bytes: Count = 16777216
    """Size of a conversation on disk in bytes from which the next message starts a new one, as
    after a long silence.
    """
    archived_bytes: Count = 67108864
    """Maximum size in bytes of the archived conversations of one person with one agent in
    `sessions/`. Beyond it the oldest are removed; the latest always stays.
    """
    sub_agents_keep_days: Annotated[int, Field(ge=0)] = 7
    """Days after which the directory of a sub-agent that has ended is removed, with its
    conversation and memories. 0 keeps them until the person sends `/forget`.
    """
    history_tokens: Count = 8192
    """Maximum number of tokens of earlier messages that are sent to the model; older ones are
    summarised.
    """
