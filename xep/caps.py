"""XEP-0115 Entity Capabilities."""

import base64
import hashlib
from collections.abc import Iterable
from typing import Annotated, Final

from xep.binding import Attr, Name, Payload
from xep.data_forms import FORM_TYPE, Form
from xep.disco import Feature, Identity

NAMESPACE: Final = "http://jabber.org/protocol/caps"


class Caps(Payload, frozen=True, kw_only=True):
    """The part of presence that identifies the sender's ``disco#info`` answer (XEP-0115 §4).

    ``ver`` identifies the answer, which is also available at the disco node ``node#ver``. Without
    ``hash`` it is the legacy format (§13), which proves nothing. ``ext`` belongs to that format
    too.
    """

    xml = Name(NAMESPACE, "c")

    hash: Annotated[str | None, Attr()] = None
    node: Annotated[str, Attr()]
    ver: Annotated[str, Attr()]
    ext: Annotated[str | None, Attr()] = None


def verification_string(
    identities: Iterable[Identity], features: Iterable[Feature], forms: Iterable[Form] = ()
) -> str:
    """Return the ``ver`` of a ``disco#info`` answer, made with SHA-1 (XEP-0115 §5.1).

    The hashed text separates its parts without quoting them: other identities and features can give
    the same text (§9.3). So a part that contains a separator is refused here, and a match still
    proves no more than what the entity says about itself.

    Raises:
        ValueError: the answer is ill-formed (§5.4), or a part of it contains a separator.
    """
    parts = [*_identities(identities), *_once("feature", [f.var for f in features])]
    for part in parts:
        _refuse_separator(part)
    for form_type, form in sorted(_typed_forms(forms), key=lambda pair: pair[0].encode()):
        parts += _form(form_type, form)
    text = "".join([part + "<" for part in parts])
    digest = hashlib.sha1(text.encode(), usedforsecurity=False).digest()
    return base64.b64encode(digest).decode("ascii")


def _identities(identities: Iterable[Identity]) -> list[str]:
    ordered = []
    for identity in identities:
        names = (identity.category, identity.type, identity.lang or "")
        if any("/" in name for name in names):
            raise ValueError("a category, type or language with a slash makes the hash ambiguous")
        key = tuple(name.encode() for name in (*names, identity.name or ""))
        ordered.append((key, "/".join((*names, identity.name or ""))))
    ordered.sort()
    return _once("identity", [text for _, text in ordered], keep_order=True)


def _typed_forms(forms: Iterable[Form]) -> list[tuple[str, Form]]:
    typed = []
    for form in forms:
        field = form.field(FORM_TYPE)
        if field is None or field.type != "hidden":
            continue  # §5.4: such a form is left out, the rest still counts
        if len(set(field.values)) != 1:
            raise ValueError("a FORM_TYPE needs one value")
        typed.append((field.values[0], form))
    _once("form", [form_type for form_type, _ in typed])
    return typed


def _form(form_type: str, form: Form) -> list[str]:
    parts = [form_type]
    fields = [field for field in form.fields if field.var != FORM_TYPE]
    for field in sorted(fields, key=lambda field: (field.var or "").encode()):
        parts += [field.var or "", *sorted(field.values, key=str.encode)]
    for part in parts:
        _refuse_separator(part)
    return parts


def _once(what: str, texts: list[str], *, keep_order: bool = False) -> list[str]:
    if len(set(texts)) != len(texts):
        raise ValueError(f"the answer is ill-formed: it contains a {what} twice")
    # "i;octet" (RFC 4790 §9.3) compares octets of UTF-8.
    return texts if keep_order else sorted(texts, key=str.encode)


def _refuse_separator(part: str) -> None:
    if "<" in part:
        raise ValueError("a part with '<' in it makes the hash ambiguous")
