"""The sections about what agents remember, and how long a conversation lasts."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, field_validator

from component.settings.kinds import Count, Section, refusal

_RESERVED = frozenset(("private", "all"))


def _scope_name(value: str) -> str:
    plain = value.isascii() and value.replace("-", "").replace("_", "").isalnum()
    if not plain or value != value.lower() or not value[0].isalpha() or len(value) > 64:
        raise refusal("must be a word of small letters, digits, - and _: `kitchen`")
    if value in _RESERVED:
        raise refusal(f"must not be {value!r}, which has a meaning of its own: choose another name")
    return value


class MemoryScope(Section):
    """Memories that several people share, with every agent.

    The name `agent` stands for what everybody shares who may talk with an agent, one scope for each
    agent; it is there without being declared.
    """

    name: Annotated[str, AfterValidator(_scope_name)] = Field(
        examples=["kitchen"], description="How the scope is called, in skills and on disk."
    )
    members: tuple[str, ...] = Field(
        examples=[["kitchen.example.com", "ann@example.com"]],
        description='Bare JIDs and domains of those who see these memories; `["*"]` is everybody'
        " who may use the agents.",
    )
    writers: tuple[str, ...] | None = Field(
        default=None,
        examples=[["ann@example.com"]],
        description="Those of the members who may also store; all of them unless set. Whoever is"
        " named here by a bare JID may also make the agents forget what others have stored.",
    )


class Memory(Section):
    """What the agents remember of each person, as files."""

    backend: Literal["markdown"] = Field(
        default="markdown", description="How memory is kept: files that people can read and edit."
    )
    path: Path | None = Field(
        default=None,
        examples=["./data/memory"],
        description="Directory of the files; made if it is missing. That of an existing Fluux Agent"
        " can be used as it is. `memory` in storage.path unless set.",
    )
    recall: Annotated[int, Field(ge=0, le=50)] = Field(
        default=5, description="Most memories that are put before the model with a message."
    )
    item_bytes: Count = Field(
        default=65536, description="Most bytes of one memory, its title and body together."
    )
    items_per_principal: Count = Field(
        default=100000, description="Most memories of one principal, and of each scope."
    )
    bytes_per_principal: Count = Field(
        default=67108864,
        description="Most bytes of a file of memories, with their earlier versions.",
    )
    versions: Count = Field(
        default=100, description="Most versions of one memory that are kept; the oldest ones go."
    )
    vectors: Literal["off", "local"] = Field(
        default="off",
        description="Whether memories are also found by what they mean: local takes a small model"
        " in this process (the `vectors` extra).",
    )
    scopes: tuple[MemoryScope, ...] = ()

    @field_validator("scopes")
    @classmethod
    def _names_differ(cls, value: tuple[MemoryScope, ...]) -> tuple[MemoryScope, ...]:
        names = [scope.name for scope in value]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise refusal(f"has two scopes called {twice!r}: give each a name of its own")
        return value


class Session(Section):
    """One conversation of a person with an agent."""

    idle_timeout_mins: Annotated[int, Field(ge=0)] = Field(
        default=240,
        description="Minutes of silence after which the next message begins a new conversation; the"
        " old one is kept in `sessions/`. 0 means never.",
    )
    max_bytes: Count = Field(
        default=16777216,
        description="Bytes of a conversation on disk from which the next message begins a new one,"
        " as after a long silence.",
    )
    archived_bytes: Count = Field(
        default=67108864,
        description="Bytes of old conversations of one person with one agent that are kept in"
        " `sessions/`. Beyond that the oldest are removed; the latest always stays.",
    )
    sub_agents_keep_days: Annotated[int, Field(ge=0)] = Field(
        default=7,
        description="Days after which the directory of a sub-agent that has ended is removed, with"
        " what it said and remembered. 0 keeps them until somebody says `/forget`.",
    )
    history_tokens: Count = Field(
        default=8192,
        description="Most tokens of earlier messages that the model is shown; what is older is"
        " summarised.",
    )
