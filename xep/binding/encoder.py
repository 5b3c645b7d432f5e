"""From a Struct to its XML text. One encoder is compiled per class, when first used.

Written as source for the same reason as the decoder: it runs for every element that is sent.
"""

import functools
from collections.abc import Callable
from typing import Any, cast

from xep.binding.declaration import Child, Field, Flag, Payload, Plan, TextChild, read_plan
from xep.binding.errors import EncodingError
from xep.binding.escaping import escape_attribute, escape_text

Encoder = Callable[[Any, str], str]


def encode(payload: Payload, parent_namespace: str = "") -> str:
    """``payload`` as XML text; its namespace is declared unless it is the parent's.

    Raises:
        EncodingError: a value cannot stand in XML, such as a text with U+0000 in it.
    """
    return encoder_for(type(payload))(payload, parent_namespace)


@functools.cache
def encoder_for(cls: type[Payload]) -> Encoder:
    """The compiled encoder of ``cls``: ``(instance, parent_namespace) -> XML text``."""
    writer = _Source(read_plan(cls))
    source = "\n".join(writer.lines())
    # The source holds names and numbers of ours only; what a class declares is passed by value.
    exec(compile(source, f"<encoder of {cls.__qualname__}>", "exec"), writer.names)  # noqa: S102
    return cast("Encoder", writer.names["encode_element"])


class _Source:
    """Writes the encoder's source; ``names`` are the values it refers to."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        namespace, local = plan.cls.xml
        self.names: dict[str, Any] = {
            "own": namespace,
            "inside": f"<{local}",
            "alone": f"<{local} xmlns='{escape_attribute(namespace)}'",
            "end": f"</{local}>",
            "attribute": escape_attribute,
            "character_data": escape_text,
            "children": functools.partial(_children, namespace),
            "rest": functools.partial(_rest, namespace),
            "encode": encode,
        }
        self.count = 0

    def name(self, value: Any) -> str:
        """A name in the source for ``value``."""
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
                case Flag():
                    content += self._flag(field)
        if plan.rest is not None:
            content.append(f"content += rest(payload.{plan.rest.name})")
        if content:
            body += ['content = ""', *content, "if content:"]
            body.append('    return f"{xml}>{content}{end}"')
        body.append('return xml + "/>"')
        head = "def encode_element(payload, parent_namespace):"
        return [head, *(f"    {line}" for line in body)]

    def _converted(self, field: Field, value: str, escape: str) -> str:
        conversion = field.conversion
        assert conversion is not None
        if conversion.encode is None:
            return f"{escape}({value})"
        return f"{escape}({self.name(_checked(field, conversion.encode))}({value}))"

    def _attribute(self, field: Field) -> list[str]:
        value = f"payload.{field.name}"
        prefix, omitted = self.name(f" {field.local}='"), None
        add = f'xml += {prefix} + {self._converted(field, "value", "attribute")} + "\'"'
        if field.required and not field.optional:
            return [f"value = {value}", add]
        condition = "value is not None"
        if not field.always and field.default is not None and not field.required:
            omitted = self.name(field.default)
            condition += f" and value != {omitted}"
        return [f"value = {value}", f"if {condition}:", f"    {add}"]

    def _text(self, field: Field) -> list[str]:
        add = f"content += {self._converted(field, 'value', 'character_data')}"
        return [f"value = payload.{field.name}", "if value is not None:", f"    {add}"]

    def _child(self, field: Field) -> list[str]:
        if field.many:
            value = f"payload.{field.name}"
            return [f"if {value}:", f"    content += children({value})"]
        return [
            f"value = payload.{field.name}",
            "if value is not None:",
            "    content += encode(value, own)",
        ]

    def _text_child(self, field: Field) -> list[str]:
        namespace = field.namespace or ""
        declared = (
            ""
            if namespace == self.plan.cls.xml.namespace
            else f" xmlns='{escape_attribute(namespace)}'"
        )
        start = self.name(f"<{field.local}{declared}>")
        end = self.name(f"</{field.local}>")
        converted = self._converted(field, "value", "character_data")
        add = f"content += {start} + {converted} + {end}"
        if field.many:
            return [f"for value in payload.{field.name}:", f"    {add}"]
        return [f"value = payload.{field.name}", "if value is not None:", f"    {add}"]

    def _flag(self, field: Field) -> list[str]:
        namespace = field.namespace or ""
        declared = (
            ""
            if namespace == self.plan.cls.xml.namespace
            else f" xmlns='{escape_attribute(namespace)}'"
        )
        flag = self.name(f"<{field.local}{declared}/>")
        return [f"if payload.{field.name}:", f"    content += {flag}"]


def _children(namespace: str, payloads: tuple[Payload, ...]) -> str:
    return "".join([encoder_for(type(payload))(payload, namespace) for payload in payloads])


def _rest(namespace: str, opaque: Any) -> str:
    return "".join([element.encode(namespace) for element in opaque])


def _checked(field: Field, convert: Callable[[Any], str]) -> Callable[[Any], str]:
    """``convert`` whose ValueError becomes an EncodingError that names the field."""

    def checked(value: Any) -> str:
        try:
            return convert(value)
        except ValueError as error:
            raise EncodingError(f"{field.local}: {error}") from error

    return checked
