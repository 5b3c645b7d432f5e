"""What is not declared: ignored on the wire, refused where a test asks for it."""

from collections.abc import Callable
from xml.etree.ElementTree import Element

from xep.binding.declaration import XML_NAMESPACE, Flag, Payload, TextChild, read_plan
from xep.binding.errors import ContentError


def refuse_undeclared(
    cls: type[Payload], element: Element, read: Callable[[type[Payload], Element], object]
) -> None:
    """Walk ``element`` and everything in it beside the declaration of ``cls``.

    Args:
        cls: the declared class.
        element: what claims to be one.
        read: decodes a child; where the wire drops a malformed one, strictness does not.

    Raises:
        ContentError: an attribute, a child or a text that ``cls`` does not declare, or a child
            that cannot be decoded.
    """
    plan = read_plan(cls)
    local = cls.xml.local
    attributes = {field.tag for field in plan.attributes}
    for key in element.keys():  # noqa: SIM118 - an Element iterates over its children
        if key not in attributes and key.rpartition("}")[0] != f"{{{XML_NAMESPACE}":
            raise ContentError(local, f"attribute '{key}' is not declared")
    if plan.text is None:
        own = (element.text or "") + "".join(child.tail or "" for child in element)
        if own.strip():
            raise ContentError(local, "text is not declared")
    payloads = {p.xml.tag: p for _, field in plan.children for p in field.payloads}
    bare = {field.tag for marker, field in plan.children if isinstance(marker, TextChild | Flag)}
    for child in element:
        if child.tag in payloads:
            refuse_undeclared(payloads[child.tag], child, read)
            read(payloads[child.tag], child)
        elif child.tag in bare:
            if len(child) or set(child.keys()) - {f"{{{XML_NAMESPACE}}}lang"}:
                raise ContentError(local, f"<{child.tag}/> holds more than is declared")
        else:
            raise ContentError(local, f"<{child.tag}/> is not declared")
