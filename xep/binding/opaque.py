"""An element that nobody here declares, kept as it came."""

from xml.etree.ElementTree import Element

import msgspec

from xep.binding.escaping import escape_attribute, escape_text

_XML = "{http://www.w3.org/XML/1998/namespace}"


class Opaque(msgspec.Struct, frozen=True):
    """Undeclared XML: its name in Clark notation, attributes, text and children, and the text
    that follows it inside its parent (``tail``).
    """

    tag: str
    attributes: tuple[tuple[str, str], ...] = ()
    text: str = ""
    children: tuple["Opaque", ...] = ()
    tail: str = ""

    @classmethod
    def of(cls, element: Element, tail: str = "") -> "Opaque":
        """``element`` with everything in it. Depth is bounded by the stream parser's limit.

        What follows ``element`` itself is its parent's text, so it is kept only where given.
        """
        return cls(
            element.tag,
            tuple(element.items()),
            element.text or "",
            tuple([cls.of(child, child.tail or "") for child in element]),
            tail,
        )

    def encode(self, parent_namespace: str = "") -> str:
        """As XML text, without the tail."""
        tag = self.tag
        namespace, _, local = tag[1:].rpartition("}") if tag[:1] == "{" else ("", "", tag)
        xml = f"<{local}"
        if namespace != parent_namespace:
            xml += f" xmlns='{escape_attribute(namespace)}'"
        for count, (name, value) in enumerate(self.attributes):
            spelled = name
            if name.startswith(_XML):
                spelled = "xml:" + name.removeprefix(_XML)
            elif name[:1] == "{":
                of, _, short = name[1:].rpartition("}")
                xml += f" xmlns:n{count}='{escape_attribute(of)}'"
                spelled = f"n{count}:{short}"
            xml += f" {spelled}='{escape_attribute(value)}'"
        if not self.text and not self.children:
            return xml + "/>"
        inner = [child.encode(namespace) + escape_text(child.tail) for child in self.children]
        return f"{xml}>{escape_text(self.text)}{''.join(inner)}</{local}>"
