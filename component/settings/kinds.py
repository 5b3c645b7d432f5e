"""What settings are made of: the kinds of values, and what every section has in common.

Each check raises with a sentence that goes on after the key's name.
"""

from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError


def refusal(sentence: str, *, key: str | None = None) -> PydanticCustomError:
    """Make the error of a check of ours; `sentence` goes on after the key's name.

    `key` names the key at fault where it is not the one being validated.
    """
    # Pydantic fills templates with braces, so a sentence that shows `${VAR}` goes in as a value.
    return PydanticCustomError("refused", "{sentence}", {"sentence": sentence, "key": key})


def http_address(value: str, example: str) -> str:
    """Take an http or https address with a host, or nothing. Raises a refusal that names one."""
    if value:
        try:
            parts = urlsplit(value)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname)
        except ValueError:
            usable = False
        if not usable:
            raise refusal(f"must be an http or https address, such as {example}")
    return value


def _not_bool(value: object) -> object:
    # Pydantic would read `port = true` as 1.
    if isinstance(value, bool):
        raise refusal("must be a number, and is true or false")
    return value


def _domain(value: str) -> str:
    if not value or any(c in "@/" or c.isspace() for c in value):
        raise refusal("must be a domain such as agent.example.com, without @, / or spaces")
    return value


def _shown(value: str) -> str:
    if not value.isprintable() or "<" in value:
        # XML cannot carry the one, and the hash of XEP-0115 is ambiguous with the other.
        raise refusal("is shown to people and cannot hold '<' or characters that do not print")
    return value


def _present(value: object) -> bool:
    # What a section of a later release holds is dropped here: nothing of it (an api_key, say) can
    # reach a repr or a log.
    return value is not None and value is not False


Seconds = Annotated[float, BeforeValidator(_not_bool), Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, BeforeValidator(_not_bool), Field(ge=1)]
Port = Annotated[int, BeforeValidator(_not_bool), Field(ge=1, le=65535)]
Later = Annotated[bool, BeforeValidator(_present)]
Jids = tuple[str, ...]
Domains = tuple[str, ...]
Domain = Annotated[str, AfterValidator(_domain)]
Shown = Annotated[str, AfterValidator(_shown)]
Confirm = Literal["destructive", "always", "never"]


class Section(BaseModel):
    """What every section has in common: no unknown keys, no changes afterwards."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, hide_input_in_errors=True, validate_default=True
    )
