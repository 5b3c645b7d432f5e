"""The section about personas: characters that people can choose for the agent."""

from typing import Annotated

from pydantic import AfterValidator, Field

from component.settings.kinds import Count, Section, refusal


def jid_pattern(value: str) -> str:
    """Read a pattern of addresses: a bare JID, in which `*` and `?` may stand for characters.

    Raises a `refusal` for what could match no address, so that no restriction is lost in silence.
    """
    if not value or "/" in value or any(c.isspace() for c in value):
        raise refusal("must be an address without a resource; `*` and `?` stand for characters")
    if "*" in value or "?" in value:
        return value.lower()
    from xep.jid import JID, JIDError  # noqa: PLC0415 - only for who restricts somebody

    try:
        return str(JID.parse(value))
    except JIDError as error:
        raise refusal(f"is no address (RFC 7622). {error}") from None


JidPattern = Annotated[str, AfterValidator(jid_pattern)]


class PersonaRestriction(Section):
    """Which personas some people or rooms can choose. The first entry that names one counts; who
    is named by none can choose any.
    """

    jid: JidPattern = Field(
        examples=["dev@conference.example.com"],
        description="Bare address of a person or room; `*` and `?` stand for any characters and"
        " any one character.",
    )
    allowed: tuple[str, ...] = Field(
        examples=[["coding-mentor", "code-*"]],
        description="Ids of the personas, with `*` and `?` as above.",
    )


class Personas(Section):
    """Characters that people can choose for the agent: packages in `personas/` of memory.path."""

    default: str = Field(
        default="",
        examples=["general-assistant"],
        description="Id of the persona that `assistant` has for who has chosen none; none unless"
        " set.",
    )
    allow_user_personas: bool = Field(
        default=False,
        description="People may make personas of their own, each for themselves. Off, since such a"
        " persona takes the place of what you have written in identity.md and personality.md (not"
        " of instructions.md); those that were made before count only while this is on.",
    )
    max_user_personas: Count = Field(
        default=5,
        le=1000,
        description="How many personas of their own one person may have with one agent.",
    )
    allow_sharing: bool = Field(
        default=False,
        description="People may export their own personas as a text, and import such texts. Off,"
        " since the agent takes what is imported for the words of the person, and somebody else"
        " can have written them.",
    )
    restrictions: tuple[PersonaRestriction, ...] = ()
