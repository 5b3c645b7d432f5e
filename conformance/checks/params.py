"""Execution: Parameters."""

import msgspec

from conformance.model import check
from conformance.stanzas import Received
from conformance.talk import Talk
from xep.fluux_agent.execute import Result

_TYPES = {"colour": "red", "flag": "true", "ratio": "0.5"}


async def _types(t: Talk, **params: str | tuple[str, ...]) -> Received:
    return await t.execute("types", {**_TYPES, **params})


def _understood(t: Talk, id_: str, answer: Received) -> dict[str, object]:
    result = t.decoded(id_, answer, Result, "a result that holds what was understood")
    try:
        value = msgspec.json.decode(result.outputs[0].text)
    except (msgspec.DecodeError, IndexError):
        value = None
    t.hold(id_, isinstance(value, dict), "one artifact of JSON", answer)
    return value if isinstance(value, dict) else {}


@check("params.convert", "EXE-002", roles=("types", "add", "echo"))
async def convert(t: Talk) -> None:
    """Texts are converted by the schema, in the formats of XML Schema."""
    for text, wanted in (("true", True), ("1", True), ("false", False), (" 0 ", False)):
        answer = await _types(t, flag=text)
        got = _understood(t, "EXE-002", answer).get("flag")
        t.hold("EXE-002", got is wanted, f"{text!r} is the boolean {wanted}", answer)
    for text, number in (("1e3", 1000.0), ("-.5", -0.5), (" 2 ", 2.0), ("+1.5E-1", 0.15)):
        answer = await _types(t, ratio=text)
        got = _understood(t, "EXE-002", answer).get("ratio")
        t.hold("EXE-002", got == number, f"{text!r} is the number {number}", answer)
    for a, b, total in (("007", "+1", "8"), (" -5\n", "2", "-3")):
        answer = await t.execute("add", {"a": a, "b": b})
        result = t.decoded("EXE-002", answer, Result, f"the sum of {a!r} and {b!r}")
        got_text = [one.text for one in result.outputs]
        t.hold("EXE-002", got_text == [total], f"{a!r} and {b!r} make {total}", answer)
    for text in ("  two  spaces  ", "line\nline", "", "1", "true", "{}", "ü😀"):
        answer = await t.execute("echo", {"text": text})
        result = t.decoded("EXE-002", answer, Result, "a result")
        got_text = [one.text for one in result.outputs]
        t.hold("EXE-002", got_text == [text], f"{text!r} verbatim", answer)


@check("execute.arrays", "EXE-003", roles=("types",))
async def arrays(t: Talk) -> None:
    """An array consists of all values with the name, in order, even if there is only one."""
    for words in (("one",), ("one", "two"), ("b", "a", "b")):
        answer = await _types(t, words=words)
        got = _understood(t, "EXE-003", answer).get("words")
        t.hold("EXE-003", got == list(words), f"the array {list(words)}", answer)


@check("execute.param-repeated", "EXE-004", "EXE-007", roles=("echo",))
async def repeated(t: Talk) -> None:
    """A name that is given twice but is not an array is refused."""
    name = t.skill("echo").param("text")
    for texts in (("a", "b"), ("a", "a")):
        answer = await t.execute("echo", {"text": texts})
        t.holds_error("EXE-004", answer, "bad-request", "invalid-param", name=name)
        t.hold("EXE-007", bool(answer.error.text), "a text that says the reason", answer)


@check("params.both", "EXE-005", roles=("echo",))
async def both(t: Talk) -> None:
    """A name that is given both as text and in JSON is refused."""
    answer = await t.execute("echo", {"text": "a"}, values={"text": "a"})
    ok = answer.is_error and answer.stanza_conditions == ["bad-request"]
    t.hold("EXE-005", ok, "<bad-request/>", answer)


@check("execute.invalid-param", "EXE-006", "EXE-007", roles=("count", "add", "types"))
async def invalid(t: Talk) -> None:
    """A parameter that is missing, unknown or invalid is named with the reason; nothing runs."""
    a, b = t.skill("add").param("a"), t.skill("add").param("b")
    for params, name in (
        ({"a": "1"}, b),
        ({"a": "one", "b": "2"}, a),
        ({"a": "1.5", "b": "2"}, a),
        ({"a": "", "b": "2"}, a),
        ({"a": "1", "b": "2", "c": "3"}, "c"),
    ):
        answer = await t.execute("add", params)
        t.holds_error("EXE-007", answer, "bad-request", "invalid-param", name=name)
        t.hold("EXE-007", bool(answer.error.text), "a text that says the reason", answer)
    for params, role_name in (
        ({"colour": "mauve"}, "colour"),
        ({"flag": "yes"}, "flag"),
        ({"ratio": "INF"}, "ratio"),
        ({"ratio": "NaN"}, "ratio"),
    ):
        answer = await _types(t, **params)
        name = t.skill("types").param(role_name)
        t.holds_error("EXE-007", answer, "bad-request", "invalid-param", name=name)
    answer = await t.execute("add", values={"a": "1", "b": 2})
    t.holds_error("EXE-007", answer, "bad-request", "invalid-param", name=a)
    key = t.new_id()
    await t.execute("count", {"key": key, "no-such-parameter": "x"})
    answer = await t.execute("count", {"key": key})
    t.hold("EXE-006", t.text(answer, "Counting") == "1", "nothing ran before", answer)


CHECKS = (convert, arrays, repeated, both, invalid)
