"""Decodes a complete element to its Struct. One decoder is compiled per class, when first used.

Only complete trees are decoded, each child separately, so the content of a child cannot change its
siblings or its parent: a malformed child is refused with its parent, or omitted.

The decoder is Python source written from the plan, as in dataclasses: it runs for every element of
every stanza, and a loop over field descriptions takes three times as long.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast
from xml.etree.ElementTree import Element

from xep.binding.declaration import (
    AnyChild,
    Child,
    Field,
    Flag,
    Payload,
    Plan,
    RawXML,
    TextChild,
    read_plan,
)
from xep.binding.errors import ContentError
from xep.binding.raw import write
from xep.binding.strictness import refuse_undeclared

P = TypeVar("P", bound=Payload)
Decoder = Callable[[Element], Any]


def decode(cls: type[P], element: Element, *, strict: bool = False) -> P:
    """Decode ``element`` as ``cls``.

    Args:
        cls: the declared class.
        element: a complete element; its name is not compared with ``cls.xml``.
        strict: refuse undeclared or malformed content instead of ignoring it; for tests.

    Raises:
        ContentError: a required part is missing, occurs too often, or cannot be converted.
    """
    if strict:
        refuse_undeclared(cls, element, decode)
    return cast("P", decoder_for(cls)(element))


@functools.cache
def decoder_for(cls: type[Payload]) -> Decoder:
    """Return the compiled decoder of ``cls``."""
    plan = read_plan(cls)
    writer = _Source(plan)
    source = "\n".join(writer.lines())
    # The source contains only names and numbers of this module; values from a class are passed as
    # values.
    exec(compile(source, f"<decoder of {cls.__qualname__}>", "exec"), writer.names)  # noqa: S102
    return cast("Decoder", writer.names["decode_element"])


class _Source:
    """Writes the decoder's source; ``names`` are the values that it refers to."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.names: dict[str, Any] = {
            "cls": plan.cls,
            "bad_value": functools.partial(_bad_value, plan.cls.xml.local),
            "missing": functools.partial(_missing, plan),
            "twice": functools.partial(_twice, plan.cls.xml.local),
            "own_text": _own_text,
            "ContentError": ContentError,
            "keep": _keep,
        }
        self.arguments: list[str] = []
        self.after_required = 0
        self.count = 0

    def name(self, value: Any) -> str:
        """Return a name in the source for ``value``."""
        self.count += 1
        name = f"v{self.count}"
        self.names[name] = value
        return name

    def lines(self) -> list[str]:
        body = self._attributes()
        body[self.after_required : self.after_required] = self._shortcut()
        body += self._children()
        if self.plan.text is not None:
            body += self._text(self.plan.text)
        body.append(f"return cls({', '.join(self.arguments)})")
        return ["def decode_element(element):", *(f"    {line}" for line in body)]

    def _local(self, field: Field) -> str:
        local = f"f_{field.name}"
        self.arguments.append(f"{field.name}={local}")
        return local

    def _converted(self, field: Field, text: str, target: str, where: str) -> list[str]:
        conversion = field.conversion
        assert conversion is not None
        if conversion.decode is None:
            return [f"{target} = {text}"]
        return [
            "try:",
            f"    {target} = {self.name(conversion.decode)}({text})",
            "except ValueError as error:",
            f"    raise bad_value({self.name(where)}, error) from error",
        ]

    def _value(self, value: Any) -> str:
        """Return ``value`` in the source: literally, where that is equivalent; as a name
        otherwise.
        """
        plain = value is None or value == () or type(value) in (bool, int, str)
        return repr(value) if plain else self.name(value)

    def _attributes(self) -> list[str]:
        """Return the fast path for attributes: nearly always only the required ones are present."""
        attributes = self.plan.attributes
        if not attributes:
            return []
        required = [field for field in attributes if field.required]
        others = [field for field in attributes if not field.required]
        lines = ["attributes = element.attrib"]
        for field in required:
            lines += self._attribute(field)
        self.after_required = len(lines)
        if others:
            lines.append(f"if len(attributes) > {len(required)}:")
            lines += [f"    {line}" for field in others for line in self._attribute(field)]
            lines.append("else:")
            lines += [f"    f_{field.name} = {self._value(field.default)}" for field in others]
        return lines

    def _shortcut(self) -> list[str]:
        """Return the fast path: nearly always only required attributes and repeated children are
        present, and the class applies its own defaults to the rest.
        """
        plan = self.plan
        fields = [field for _, field in plan.children]
        repeats = [each for each in fields if each.many and len(each.payloads) == 1]
        if (
            not repeats
            or not plan.attributes
            or plan.text is not None
            or any(
                each.required or each.at_least or each.at_most is not None or each.drop_malformed
                for each in fields
            )
        ):
            return []
        field = repeats[0]
        payload = field.payloads[0]
        local = f"f_{field.name}"
        required = [each.name for each in plan.attributes if each.required]
        given = "".join([f"{name}=f_{name}, " for name in required])
        put = _put(local, field, "")
        return [
            f"if len(attributes) == {len(required)}:",
            f"    {local} = None",
            "    for child in element:",
            f"        if child.tag != {payload.xml.tag!r}:",
            "            break",
            f"        value = {self._decoder(payload)}(child)",
            *(f"        {line}" for line in put),
            "    else:",
            f"        return cls({given}{field.name}=() if {local} is None else tuple({local}))",
        ]

    def _attribute(self, field: Field) -> list[str]:
        local = self._local(field)
        if field.required:
            absent = [f"raise missing({self.name(field)})"]
        else:
            absent = [f"{local} = {self._value(field.default)}"]
        convert = self._converted(field, local, local, f"attribute '{field.local}'")
        lines = [f"{local} = attributes.get({field.tag!r})"]
        if convert == [f"{local} = {local}"]:
            if not field.required and field.default is None:
                return lines
            return [*lines, f"if {local} is None:", *(f"    {line}" for line in absent)]
        return [
            *lines,
            f"if {local} is None:",
            *(f"    {line}" for line in absent),
            "else:",
            *(f"    {line}" for line in convert),
        ]

    def _children(self) -> list[str]:
        plan = self.plan
        if not plan.children:
            return []
        before: list[str] = []
        branches: list[str] = []
        after: list[str] = []
        others: list[str] = []
        for marker, field in plan.children:
            local = self._local(field)
            start = self._value(field.default) if isinstance(marker, Flag) else "None"
            before.append(f"{local} = {start}")
            for tag, reading in self._readings(marker, field):
                word = "elif" if branches else "if"
                branches.append(f"{word} tag == {tag!r}:")
                branches += [f"    {line}" for line in reading]
            if isinstance(marker, AnyChild):
                others = ["value = keep(child)", *_put(local, field, "")]
            after += self._afterwards(field, local) if not isinstance(marker, Flag) else []
        if others:
            head = ["else:"] if branches else ["if True:"]
            branches += [*head, *(f"    {line}" for line in others)]
        loop = ["for child in element:", "    tag = child.tag"]
        return [*before, *loop, *(f"    {line}" for line in branches), *after]

    def _readings(self, marker: object, field: Field) -> list[tuple[str, list[str]]]:
        """Return, for each element name of a field, the lines that read one."""
        local = f"f_{field.name}"
        match marker:
            case Flag():
                return [(field.tag, [f"{local} = True"])]
            case AnyChild():
                return []
            case TextChild():
                lines = self._converted(field, '(child.text or "")', "value", f"<{field.local}/>")
                return [(field.tag, [*lines, *_put(local, field, self.name(field.local))])]
            case Child():
                return [(p.xml.tag, self._payload(local, field, p)) for p in field.payloads]
        raise AssertionError(marker)

    def _payload(self, local: str, field: Field, payload: type[Payload]) -> list[str]:
        decoder = self._decoder(payload)
        put = _put(local, field, self.name(payload.xml.local))
        if not field.drop_malformed:
            return [f"value = {decoder}(child)", *put]
        return [
            "try:",
            f"    value = {decoder}(child)",
            "except ContentError:",
            "    continue",
            *put,
        ]

    def _decoder(self, payload: type[Payload]) -> str:
        """Return the name of the decoder of ``payload``, which is compiled when it is
        first called.
        """

        def first(element: Element) -> Any:
            self.names[name] = decoder = decoder_for(payload)
            return decoder(element)

        name = self.name(first)
        return name

    def _afterwards(self, field: Field, local: str) -> list[str]:
        if not field.many:
            absent = (
                f"raise missing({self.name(field)})"
                if field.required
                else f"{local} = {self._value(field.default)}"
            )
            if absent == f"{local} = None":
                return []
            return [f"if {local} is None:", f"    {absent}"]
        absent = "()" if field.required else self._value(field.default)
        lines = [f"{local} = {absent} if {local} is None else tuple({local})"]
        if field.at_least or field.at_most is not None:
            check = self.name(functools.partial(_check_count, self.plan.cls.xml.local, field))
            lines.append(f"{check}(len({local}))")
        return lines

    def _text(self, field: Field) -> list[str]:
        local = self._local(field)
        read = f'{local} = own_text(element) if len(element) else (element.text or "")'
        conversion = field.conversion
        assert conversion is not None
        if conversion.decode is None:
            return [read]
        convert = self._converted(field, local, local, "text")
        if field.required:
            return [read, *convert]
        default = self.name(field.default)
        return [
            read,
            f"if not {local}.strip():",
            f"    {local} = {default}",
            "else:",
            *(f"    {line}" for line in convert),
        ]


def _put(local: str, field: Field, child: str) -> list[str]:
    if field.many:
        return [
            f"if {local} is None:",
            f"    {local} = [value]",
            "else:",
            f"    {local}.append(value)",
        ]
    return [f"if {local} is not None:", f"    raise twice({child})", f"{local} = value"]


def _keep(element: Element) -> RawXML:
    return RawXML(write(element, None))


def _own_text(element: Element) -> str:
    return (element.text or "") + "".join([child.tail or "" for child in element])


def _bad_value(element: str, where: str, error: ValueError) -> ContentError:
    return ContentError(element, f"{where}: {error}")


def _twice(element: str, child: str) -> ContentError:
    return ContentError(element, f"<{child}/> may stand only once")


def _missing(plan: Plan, field: Field) -> ContentError:
    element = plan.cls.xml.local
    if field in plan.attributes:
        return ContentError(element, f"attribute '{field.local}' is missing")
    names = [payload.xml.local for payload in field.payloads] or [field.local]
    return ContentError(element, " or ".join(f"<{name}/>" for name in names) + " is missing")


def _check_count(element: str, field: Field, count: int) -> None:
    names = " or ".join(
        f"<{name}/>" for name in [p.xml.local for p in field.payloads] or [field.local]
    )
    if count < field.at_least:
        raise ContentError(element, f"needs at least {field.at_least} {names}")
    if field.at_most is not None and count > field.at_most:
        raise ContentError(element, f"may hold at most {field.at_most} {names}")
