"""Refuses undeclared content in tests; on the wire it is ignored."""

from collections.abc import Callable
from xml.etree.ElementTree import Element

from xep.binding.declaration import XML_NAMESPACE, AnyChild, Flag, Payload, TextChild, read_plan
from xep.binding.errors import ContentError


def refuse_undeclared(
    cls: type[Payload], element: Element, read: Callable[[type[Payload], Element], object]
) -> None:
    """Compare ``element`` and all its content with the declaration of ``cls``.

    Args:
        cls: the declared class.
        element: an element that should be one.
        read: decodes a child; a malformed child is an error here, even if the wire drops it.

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
    anything = any(isinstance(marker, AnyChild) for marker, _ in plan.children)
    for child in element:
        if child.tag in payloads:
            refuse_undeclared(payloads[child.tag], child, read)
            read(payloads[child.tag], child)
        elif child.tag in bare:
            if len(child) or set(child.keys()) - {f"{{{XML_NAMESPACE}}}lang"}:
                raise ContentError(local, f"<{child.tag}/> contains more than is declared")
        elif not anything:
            raise ContentError(local, f"<{child.tag}/> is not declared")
