"""Encodes a Struct to its XML text. One encoder is compiled per class, when first used.

Written as source for the same reason as the decoder: it runs for every element that is sent.
"""

import functools
from collections.abc import Callable
from typing import Any, Literal, cast

from xep.binding.declaration import (
    AnyChild,
    Child,
    Field,
    Flag,
    Payload,
    Plan,
    TextChild,
    read_plan,
)
from xep.binding.errors import EncodingError
from xep.binding.escaping import attribute_special, escape_attribute, escape_text

Encoder = Callable[[Any, str], str]


def encode(payload: Payload, parent_namespace: str = "") -> str:
    """Return ``payload`` as XML text; its namespace is declared unless it is the parent's.

    A character that XML does not allow is written as U+FFFD (`escaping`).

    Raises:
        EncodingError: a value cannot be encoded, such as a number that is not finite.
    """
    return encoder_for(type(payload))(payload, parent_namespace)


@functools.cache
def encoder_for(cls: type[Payload]) -> Encoder:
    """Return the compiled encoder of ``cls``: ``(instance, parent_namespace) -> XML text``."""
    writer = _Source(read_plan(cls))
    source = "\n".join(writer.lines())
    # The source contains only names and numbers of this module; values from a class are passed as
    # values.
    exec(compile(source, f"<encoder of {cls.__qualname__}>", "exec"), writer.names)  # noqa: S102
    return cast("Encoder", writer.names["encode_element"])


class _Source:
    """Writes the encoder's source; ``names`` are the values that it refers to."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        namespace, local = plan.cls.xml
        self.names: dict[str, Any] = {
            "own": namespace,
            "inside": f"<{local}",
            "alone": f"<{local} xmlns='{escape_attribute(namespace)}'",
            "end": f"</{local}>",
            "attribute": escape_attribute,
            "attribute_special": attribute_special,
            "text": escape_text,
            "unfit": _unfit,
            "encoder_for": encoder_for,
        }
        self.count = 0

    def name(self, value: Any) -> str:
        """Return a name in the source for ``value``."""
        self.count += 1
        name = f"v{self.count}"
        self.names[name] = value
        return name

    def lines(self) -> list[str]:
        plan = self.plan
        body = ["xml = inside if parent_namespace == own else alone"]
        body += [line for field in plan.attributes for line in self._attribute(field)]
        content: list[str] = []
        if plan.text is not None:
            content += self._text(plan.text)
        for marker, field in plan.children:
            match marker:
                case Child():
                    content += self._child(field)
                case TextChild():
                    content += self._text_child(field)
                case AnyChild():
                    content += [
                        f"for value in payload.{field.name}:",
                        "    content += value.text",
                    ]
                case Flag():
                    content += self._flag(field)
        if content:
            body += ['content = ""', *content, "if content:"]
            body.append('    return f"{xml}>{content}{end}"')
        body.append('return xml + "/>"')
        head = "def encode_element(payload, parent_namespace):"
        return [head, *(f"    {line}" for line in body)]

    def _written(self, field: Field, kind: Literal["attribute", "text"]) -> tuple[list[str], str]:
        """Return the lines that turn `value` into text, and the expression for that text,
        escaped.
        """
        conversion = field.conversion
        assert conversion is not None
        lines: list[str] = []
        if conversion.encode is not None:
            lines = [
                "try:",
                f"    value = {self.name(conversion.encode)}(value)",
                "except ValueError as error:",
                f"    raise unfit({self.name(field.local)}, error) from error",
            ]
        if conversion.plain:
            return lines, "value"
        # Nearly always there is nothing to escape, and a call would cost as much as the check.
        if kind == "attribute":
            clean = "value.isalnum() or attribute_special(value) is None"
            return lines, f"value if {clean} else attribute(value)"
        # Texts are longer. Printable text contains none of the characters that XML does not allow,
        # and no line break: that check takes half the time.
        clean = "value.isprintable() and '&' not in value and '<' not in value and '>' not in value"
        return lines, f"value if {clean} else text(value)"

    def _attribute(self, field: Field) -> list[str]:
        prefix = self.name(f" {field.local}='")
        lines, written = self._written(field, "attribute")
        add = [*lines, f"""xml = f"{{xml}}{{{prefix}}}{{{written}}}'\""""]
        value = f"value = payload.{field.name}"
        if field.required and not field.optional:
            return [value, *add]
        condition = "value is not None"
        if field.default is None or field.required:
            return [value, f"if {condition}:", *(f"    {line}" for line in add)]
        default = self.name(field.default)
        if not field.always:
            condition += f" and value != {default}"
            return [value, f"if {condition}:", *(f"    {line}" for line in add)]
        # Nearly always it is the default, whose text is known.
        known = self.name(f" {field.local}='{self._text_of(field)}'")
        return [
            value,
            f"if value == {default}:",
            f"    xml += {known}",
            f"elif {condition}:",
            *(f"    {line}" for line in add),
        ]

    @staticmethod
    def _text_of(field: Field) -> str:
        """Return the encoded default of an attribute."""
        assert field.conversion is not None
        encode = field.conversion.encode
        return escape_attribute(field.default if encode is None else encode(field.default))

    def _text(self, field: Field) -> list[str]:
        lines, written = self._written(field, "text")
        add = [*lines, f"content += {written}"]
        return [
            f"value = payload.{field.name}",
            "if value is not None:",
            *(f"    {line}" for line in add),
        ]

    def _child(self, field: Field) -> list[str]:
        encoder = "encoder_for(type(value))"
        if len(field.payloads) == 1:
            encoder = self.name(encoder_for(field.payloads[0]))
        add = f"    content += {encoder}(value, own)"
        if field.many:
            return [f"for value in payload.{field.name}:", add]
        return [f"value = payload.{field.name}", "if value is not None:", add]

    def _text_child(self, field: Field) -> list[str]:
        namespace = field.namespace or ""
        declared = (
            ""
            if namespace == self.plan.cls.xml.namespace
            else f" xmlns='{escape_attribute(namespace)}'"
        )
        start = self.name(f"<{field.local}{declared}>")
        end = self.name(f"</{field.local}>")
        lines, written = self._written(field, "text")
        # `+=` extends the text in place; as a part of the f-string it would be copied for each of
        # thousands of values.
        add = [*lines, f'content += f"{{{start}}}{{{written}}}{{{end}}}"']
        if field.many:
            head = [f"for value in payload.{field.name}:"]
        else:
            head = [f"value = payload.{field.name}", "if value is not None:"]
        return [*head, *(f"    {line}" for line in add)]

    def _flag(self, field: Field) -> list[str]:
        namespace = field.namespace or ""
        declared = (
            ""
            if namespace == self.plan.cls.xml.namespace
            else f" xmlns='{escape_attribute(namespace)}'"
        )
        flag = self.name(f"<{field.local}{declared}/>")
        return [f"if payload.{field.name}:", f"    content += {flag}"]


def _unfit(name: str, error: ValueError) -> EncodingError:
    return EncodingError(f"{name}: {error}")
