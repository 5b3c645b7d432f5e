"""JMESPath expressions in the settings, which filter events and select parts of JSON."""

from typing import Annotated

from pydantic import AfterValidator

from component.settings.kinds import refusal


def check(value: str) -> str:
    """Return an expression, or an empty text. Raises a refusal."""
    if value:
        import jmespath  # noqa: PLC0415 - only where something is filtered
        from jmespath.exceptions import JMESPathError  # noqa: PLC0415

        try:
            jmespath.compile(value)
        except JMESPathError as error:
            reason = str(error).splitlines()[0]
            raise refusal(f"is not a JMESPath expression: {reason}") from None
    return value


Expression = Annotated[str, AfterValidator(check)]
