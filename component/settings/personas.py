"""The section about personas, which people can choose for the agent."""

from typing import Annotated

from pydantic import AfterValidator, Field

from component.settings.kinds import Count, Section, refusal


def jid_pattern(value: str) -> str:
    """Return a pattern of addresses: a bare JID, in which `*` and `?` may match characters.

    Raises a `refusal` for a pattern that could match no address, so that no restriction is silently
    ineffective.
    """
    if not value or "/" in value or any(c.isspace() for c in value):
        raise refusal("must be an address without a resource; `*` and `?` match characters")
    if "*" in value or "?" in value:
        return value.lower()
    from xep.jid import JID, JIDError  # noqa: PLC0415 - only for who restricts somebody

    try:
        return str(JID.parse(value))
    except JIDError as error:
        raise refusal(f"is not an address (RFC 7622). {error}") from None


JidPattern = Annotated[str, AfterValidator(jid_pattern)]


class PersonaRestriction(Section):
    """Which personas some people or rooms can choose. The first entry that matches applies; without
    a match all can be chosen.
    """

    jid: JidPattern = Field(
        examples=["dev@conference.example.com"],
        description="Bare address of a person or room; `*` and `?` match any characters and any "
        "one character.",
    )
    allowed: tuple[str, ...] = Field(
        examples=[["coding-mentor", "code-*"]],
        description="Ids of the personas, with `*` and `?` as above.",
    )


class Personas(Section):
    """Personas that people can choose for the agent: packages in `personas/` of memory.path."""

    default: str = Field(
        default="",
        examples=["general-assistant"],
        description="Id of the persona of `assistant` for people who have not chosen one."
        " Default: none.",
    )
    allow_user_personas: bool = Field(
        default=False,
        description="People may create personas for themselves. Off by default, because such a "
        "persona replaces the texts in identity.md and personality.md (not instructions.md). "
        "Existing ones are used only while this is on.",
    )
    max_user_personas: Count = Field(
        default=5,
        le=1000,
        description="Maximum number of personas that one person may create with one agent.",
    )
    allow_sharing: bool = Field(
        default=False,
        description="People may export the personas that they created as a text, and import such "
        "texts. Off by default, because the agent treats an imported text as written by the "
        "person, although somebody else may have written it.",
    )
    restrictions: tuple[PersonaRestriction, ...] = ()
