"""Checks that examine every stanza from the target."""

import re
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, get_args
from xml.etree.ElementTree import Element, tostring

from conformance.model import Finding, Watch
from conformance.stanzas import CLIENT, LANG, Received
from xep.file_sharing import NAMESPACE as FILES
from xep.fluux_agent import NAMESPACE as AGENT
from xep.fluux_agent.confirm import NAMESPACE as CONFIRM
from xep.fluux_agent.errors import NAMESPACE as ERRORS
from xep.fluux_agent.errors import Helps
from xep.fluux_agent.execute import NAMESPACE as EXECUTE
from xep.fluux_agent.task import NAMESPACE as TASK
from xep.stanza_error import DEFAULT_TYPES
from xep.stanza_error import NAMESPACE as STANZAS

TABLE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "malformed": "bad-request",
        "invalid-param": "bad-request",
        "unknown-skill": "item-not-found",
        "unknown-task": "item-not-found",
        "unknown-input": "item-not-found",
        "unknown-confirmation": "item-not-found",
        "forbidden": "forbidden",
        "mode-unavailable": "feature-not-implemented",
        "delegation-unavailable": "feature-not-implemented",
        "grant-required": "not-authorized",
        "invalid-grant": "forbidden",
        "confirmation-unavailable": "not-allowed",
        "denied": "not-allowed",
        "confirmation-expired": "not-acceptable",
        "input-expired": "not-acceptable",
        "expired": "not-acceptable",
        "deadline-expired": "not-acceptable",
        "conflict": "conflict",
        "retry": "resource-constraint",
        "over-quota": "resource-constraint",
        "budget-exhausted": "not-acceptable",
        "too-big": "policy-violation",
        "loop": "not-allowed",
        "hops-exceeded": "not-allowed",
        "timeout": "remote-server-timeout",
        "remote-failure": "remote-server-timeout",
        "outcome-unknown": "internal-server-error",
        "internal": "internal-server-error",
    }
)
"""The stanza error of each condition: the table Failures of the specification, Errors."""

_EITHER: Final = frozenset({"remote-server-timeout"})
"""Stanza errors for which the table allows both the types wait and cancel."""
_WITH_RETRY: Final = frozenset({"resource-constraint"})
_TIMES: Final = ("deadline", "created", "updated", "retain-until")
_UTC = re.compile(r"\d{4,}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_IDENTIFIER = re.compile(r"[A-Za-z0-9._~-]{1,128}")
_LEAKS = re.compile(
    r"Traceback \(most recent call last\)|File \"[^\"]+\", line \d+"
    r"|\bat [\w.$]+\([\w.]+:\d+\)|panicked at|goroutine \d+ \[|/home/\w+/|/usr/lib/"
)
_IDENTIFIERS: Final = {
    "accepted": ("task",),
    "task": ("id", "request", "context"),
    "confirm": ("id", "task"),
    "input": ("id",),
    "events": ("id",),
}
_FOR_PEOPLE: Final = {
    f"{{{AGENT}#skills}}title": None,
    f"{{{AGENT}#skills}}description": None,
    f"{{{AGENT}#skills}}example": None,
    f"{{{AGENT}#task}}question": None,
    f"{{{AGENT}#task}}text": None,
}


def watches(max_stanza_bytes: int) -> tuple[Watch, ...]:
    """Return the watches; `max_stanza_bytes` is the largest stanza that the target announces to
    send.
    """

    def size(stanza: Received) -> Iterable[Finding]:
        length = len(stanza.xml.encode())
        if length > max_stanza_bytes:
            expected = f"no stanza larger than max_stanza_bytes, {max_stanza_bytes}"
            yield Finding("RUL-001", expected, f"{length} bytes: {stanza.xml[:300]}")

    asked: dict[tuple[str, str], str] = {}

    def again(stanza: Received) -> Iterable[Finding] | None:
        confirm = stanza.tree.find(f"{{{CONFIRM}}}confirm")
        if stanza.head.kind != "message" or confirm is None:
            return None
        # In any case the bare JIDs are compared, because a server delivers to one resource of an
        # account.
        key = ((stanza.head.to or "").partition("/")[0], confirm.get("id", ""))
        said = tostring(confirm, "unicode") + (stanza.body or "")
        before = asked.setdefault(key, said)
        if before is said:
            return None
        if before == said:
            return ()
        return [Finding("CNF-017", "the same content when it is sent again", stanza.xml)]

    return (
        Watch("address.from", "Answers come from where the request went", ("COM-002",), _from),
        Watch("wire.utc", "Times are in UTC, with Z", ("COM-015",), _utc),
        Watch("wire.identifiers", "Identifiers are of the allowed form", ("COM-017",), _ids),
        Watch("errors.table", "Errors are those of the table", ("ERR-001",), _table),
        Watch("errors.type", "Errors have the type of the RFC", ("ERR-002",), _type),
        Watch("errors.retry", "A refusal that may pass says when", ("ERR-003",), _retry),
        Watch("errors.helps", "A refusal says what helps", ("ERR-008",), _helps),
        Watch("errors.lang", "Texts of errors have a language", ("ERR-004",), _lang),
        Watch("errors.leak", "Texts of errors hold no traceback", ("ERR-005",), _leak),
        Watch("i18n.lang", "Texts for people have a language", ("I18-001",), _people),
        Watch("confirm.again", "A question sent again is the same one", ("CNF-017",), again),
        Watch("input.secrets", "No question asks for a secret", ("INP-005",), _secrets),
        Watch("artifact.reference", "A reference is one part", ("ART-005",), _reference),
        Watch("rules.size", "No stanza is larger than announced", ("RUL-001",), size),
    )


def _from(stanza: Received) -> Iterable[Finding] | None:
    if stanza.answers is None:
        return None
    sender = stanza.head.sender or ""
    if sender == stanza.answers:
        return ()
    return [Finding("COM-002", f"an answer from {stanza.answers}", stanza.xml)]


def _utc(stanza: Received) -> Iterable[Finding] | None:
    times = [
        value
        for element in _ours(stanza)
        for name in _TIMES
        if (value := element.get(name)) is not None
    ]
    times += [e.text or "" for e in _ours(stanza) if e.tag.endswith("}expires") and e.text]
    if not times:
        return None
    return [
        Finding("COM-015", "a time in UTC, as XEP-0082 writes it, with Z", time)
        for time in times
        if not _UTC.fullmatch(time)
    ]


def _ids(stanza: Received) -> Iterable[Finding] | None:
    ids = [
        value
        for element in _ours(stanza)
        for name in _IDENTIFIERS.get(element.tag.rpartition("}")[2], ())
        if (value := element.get(name)) is not None
    ]
    if not ids:
        return None
    expected = "an identifier of 1 to 128 letters, digits, '.', '_', '~' and '-'"
    return [Finding("COM-017", expected, id_) for id_ in ids if not _IDENTIFIER.fullmatch(id_)]


def _table(stanza: Received) -> Iterable[Finding] | None:
    conditions = stanza.agent_conditions
    if not stanza.is_error or not conditions:
        return None
    named = [one for one in conditions if one != "retry"] or conditions
    if "over-quota" not in named and "retry" in conditions and named != ["retry"]:
        # Beside another condition <retry/> is a hint; it is a condition only when it is alone.
        named = [one for one in named if one != "retry"]
    if len(named) != 1:
        return [Finding("ERR-001", "one condition of #errors", stanza.xml)]
    wanted = TABLE.get(named[0])
    if wanted is None:
        return [Finding("ERR-001", "a condition that the specification knows", stanza.xml)]
    if stanza.stanza_conditions != [wanted]:
        return [Finding("ERR-001", f"<{wanted}/> with <{named[0]}/>", stanza.xml)]
    return ()


def _type(stanza: Received) -> Iterable[Finding] | None:
    error = stanza.error_element
    known = [(name, type_) for name, type_ in DEFAULT_TYPES.items()]
    if not stanza.is_error or error is None:
        return None
    for name, type_ in known:
        if name not in stanza.stanza_conditions:
            continue
        allowed = {"wait", "cancel"} if name in _EITHER else {type_}
        if error.get("type") not in allowed:
            words = " or ".join(sorted(allowed))
            return [Finding("ERR-002", f"<{name}/> of type {words}", stanza.xml)]
        return ()
    return [Finding("ERR-002", "a condition of RFC 6120 §8.3.3", stanza.xml)]


def _retry(stanza: Received) -> Iterable[Finding] | None:
    if not stanza.is_error or not _WITH_RETRY & set(stanza.stanza_conditions):
        return None
    retries = [one for one in stanza.error.application if type(one).__name__ == "Retry"]
    if len(retries) == 1 and getattr(retries[0], "after", -1) >= 0:
        return ()
    return [Finding("ERR-003", "<retry/> with 'after' in seconds", stanza.xml)]


def _helps(stanza: Received) -> Iterable[Finding] | None:
    refusals = [
        element
        for element in _ours(stanza)
        if element.tag in (f"{{{ERRORS}}}denied", f"{{{ERRORS}}}budget-exhausted")
    ]
    if not refusals:
        return None
    wrong = [one for one in refusals if one.get("helps") not in get_args(Helps)]
    return [Finding("ERR-008", "what helps, in 'helps'", stanza.xml)] if wrong else ()


def _lang(stanza: Received) -> Iterable[Finding] | None:
    texts = _error_texts(stanza)
    if not texts:
        return None
    bare = [text for text in texts if not text.get(LANG)]
    return [Finding("ERR-004", "<text/> with xml:lang of its own", stanza.xml)] if bare else ()


def _leak(stanza: Received) -> Iterable[Finding] | None:
    texts = _error_texts(stanza)
    if not texts:
        return None
    found = [text.text for text in texts if _LEAKS.search(text.text or "")]
    return [Finding("ERR-005", "a text without a traceback", stanza.xml)] if found else ()


def _people(stanza: Received) -> Iterable[Finding] | None:
    spoken = list(_spoken(stanza.tree, None))
    if not spoken:
        return None
    bare = [element.tag.rpartition("}")[2] for element, lang in spoken if not lang]
    if not bare:
        return ()
    got = f"<{bare[0]}/> in {stanza.xml[:1000]}"
    return [Finding("I18-001", "xml:lang on text for people, or around it", got)]


def _secrets(stanza: Received) -> Iterable[Finding] | None:
    asked = stanza.tree.findall(f".//{{{TASK}}}input")
    if not asked:
        return None
    fields = [field for one in asked for field in one.iter("{jabber:x:data}field")]
    private = [field for field in fields if field.get("type") == "text-private"]
    return [Finding("INP-005", "no field of type text-private", stanza.xml)] if private else ()


def _reference(stanza: Received) -> Iterable[Finding] | None:
    outputs = stanza.tree.findall(f".//{{{EXECUTE}}}output[{{{FILES}}}file-sharing]")
    if not outputs:
        return None
    parts = [one for one in outputs if one.get("part", "0") != "0" or one.get("last") == "false"]
    return [Finding("ART-005", "an artifact by reference in one part", stanza.xml)] if parts else ()


def _spoken(element: Element, lang: str | None) -> Iterator[tuple[Element, str | None]]:
    """Yield each element with text for people, and the language of the text."""
    lang = element.get(LANG, lang)
    if element.tag in _FOR_PEOPLE:
        yield element, lang
    for child in element:
        yield from _spoken(child, lang)


def _error_texts(stanza: Received) -> list[Element]:
    return stanza.tree.findall(f"{CLIENT}error/{{{STANZAS}}}text")


def _ours(stanza: Received) -> list[Element]:
    return [element for element in stanza.tree.iter() if element.tag.startswith(f"{{{AGENT}#")]
