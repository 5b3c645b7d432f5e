"""What a hostile provider may do, by name."""

import base64
import gzip
import itertools
import json
import zlib
from collections.abc import Iterator
from functools import cache, partial
from typing import Any

from tests.component.models.answers import sse
from tests.hostile.provider import (
    DONE,
    END,
    HONEST,
    PIECE,
    Attack,
    body,
    chunk,
    chunked,
    head,
    honest,
)

ATTACKS: dict[str, Attack] = {}
"""Each by its name."""
KEY = "sk-proj-A1b2C3d4E5f6G7h8"
"""The key of the client."""
SPELLINGS = {
    "as it is": KEY,
    "in capitals": KEY.upper(),
    "in words": " ".join(KEY[at : at + 4] for at in range(0, len(KEY), 4)),
    "in letters": " ".join(KEY),
    "backwards": KEY[::-1],
    "in hexadecimal digits": KEY.encode().hex(),
    "as a password": base64.b64encode(f"user:{KEY}".encode()).decode(),
}
SLOW: set[str] = set()
"""Those that may last as long as the client waits."""


def sends(name: str, *pieces: bytes | None, drips: bool = False) -> None:
    """Add an attack that sends these."""
    _add(name, lambda: iter(pieces), drips=drips)


def repeats(name: str, first: bytes, unit: bytes, *, drips: bool = False) -> None:
    """Add an attack that never ends."""

    def play() -> Iterator[bytes | None]:
        yield first
        if drips:
            yield from itertools.chain.from_iterable((unit, None) for _ in itertools.count())
        yield from itertools.repeat(unit)

    _add(name, play, drips=drips)


def says(name: str, *chunks: Any, finish: str | None = "stop") -> None:
    """Add an answer that is streamed, and the same as one document."""
    events = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in chunks]
    last = [] if finish is None else [json.dumps(chunk(finish=finish)).encode()]
    streamed = b"".join(b"data: %s\n\n" % event for event in (*events, *last))
    sends(f"{name}, streamed", body(streamed + DONE))
    whole = events[0].replace(b'"delta"', b'"message"')
    if finish is not None:
        whole = whole.replace(b'"finish_reason": null', b'"finish_reason": "%s"' % finish.encode())
    sends(f"{name}, whole", body(whole, "application/json"))


def _add(name: str, attack: Attack, *, drips: bool) -> None:
    assert name not in ATTACKS, name
    ATTACKS[name] = attack
    if drips:
        SLOW.add(name)


def calls(*each: Any, **more: Any) -> dict[str, Any]:
    """An event with these calls of tools."""
    return chunk({"tool_calls": list(each)}, **more)


def one_call(**changes: Any) -> dict[str, Any]:
    """A call of a tool that there is."""
    said = {"index": 0, "id": "c1", "type": "function"}
    return said | {"function": {"name": "look", "arguments": "{}"}} | changes


def _endless() -> None:
    stream, document = head(), head("application/json")
    repeats("an endless document", document + chunked(b'{"a":"'), chunked(b"x" * PIECE))
    repeats("an endless document of objects", document + chunked(b"["), chunked(b"{}," * 20_000))
    repeats("an endless document of space", document, chunked(b" " * PIECE))
    repeats("an endless line", stream + chunked(b"data: "), chunked(b"x" * PIECE))
    repeats("an endless line that is no data", stream, chunked(b"x" * PIECE))
    repeats("an endless event", stream, chunked(b"data: " + b"x" * 1000 + b"\n"))
    repeats("an event of empty lines of data", stream, chunked(b"data:\n" * 10_000))
    repeats("endless events", stream, chunked(b"data: {}\n\n" * 6000))
    repeats("endless events without a choice", stream, chunked(sse({"choices": []}) * 2000))
    repeats("endless comments", stream, chunked(b": there\n\n" * 7000))
    repeats("endless lines", stream, chunked(b"\n" * PIECE))
    repeats("endless text", stream, chunked(sse(chunk({"content": "word "})) * 500))
    repeats("endless large text", stream, chunked(sse(chunk({"content": "x" * 60_000}))))
    repeats("endless refusal", stream, chunked(sse(chunk({"refusal": "no " * 1000}))))
    more = calls({"index": 0, "id": "c1", "function": {"name": "look", "arguments": "1" * 1000}})
    repeats("endless arguments", stream, chunked(sse(more)))
    repeats("endless calls", stream, chunked(sse(calls(one_call(id=None, index=None)))))
    usage = chunk(usage={"prompt_tokens": 1, "completion_tokens": 1})
    repeats("endless usage", stream, chunked(sse(usage) * 100))
    repeats("endless after the end", honest()[:-1].replace(b"Content-Length", b"X"), b"\n" + DONE)
    finished = stream + chunked(sse(chunk({"content": HONEST}, "stop")) + DONE)
    repeats("endless after all was said", finished, chunked(b"x" * PIECE))
    repeats("endless without a length", b"HTTP/1.1 200 -\r\n\r\n", b"x" * PIECE)
    single = b"".join(chunked(bytes((one,))) for one in b"data: " + b"x" * 5000)
    repeats("endless single bytes", stream, single)
    text = b"".join(chunked(bytes((one,))) for one in sse(chunk({"content": "word "})))
    repeats("endless text in single bytes", stream, text * 20)


@cache
def _bomb(encoding: str) -> bytes:
    """A hundred megabytes in a hundred kilobytes."""
    match encoding:
        case "gzip":
            return gzip.compress(b"x" * (100 << 20))
        case "deflate":
            return zlib.compress(b"x" * (100 << 20))
        case "gzip, gzip":
            return gzip.compress(_bomb("gzip"))
    return b"{}"


def _packed() -> None:
    def play(encoding: str, status: int) -> Iterator[bytes]:
        more = {"Content-Encoding": encoding}
        yield body(_bomb(encoding), "application/json", status=status, headers=more)

    for encoding in ("gzip", "deflate", "gzip, gzip", "br", "zstd", "x-unknown"):
        for status in (200, 400, 500):
            name = f"packed as {encoding} with {status}"
            _add(name, partial(play, encoding, status), drips=False)
    events = gzip.compress(sse(chunk({"content": "x" * 1000})) * 2000)
    sends("a stream packed as gzip", body(events, headers={"Content-Encoding": "gzip"}))


def _errors() -> None:
    for status in (400, 401, 404, 429, 500, 503):
        start = head("application/json", status) + chunked(b'{"error":{"message":"')
        repeats(f"an endless error {status}", start, chunked(b"x" * PIECE))
    repeats("an endless page", head("text/html", 502), chunked(b"<p>Bad gateway</p>" * 3000))
    deep = b'{"error":' * 100_000
    sends("a deep error", body(deep, "application/json", status=500))
    sends("a deep error in the stream", body(b"data: " + deep + b"\n\n"))
    for charset in ("punycode", "rot13", "zip", "utf-16", "idna", "\u00fcnknown"):
        name = f"text/plain; charset={charset}"
        sends(f"an error as {charset!a}", body(b"x" * 60_000, name, status=400))
    said = {"error": {"message": "\ud800 \x00 \x1b[2J", "code": "\x01", "type": {}}}
    sends("an error of control characters", body(sse(said)))
    sends("an error of no words", body(sse({"error": [[[]]], "code": 1e999})))
    for after in ("1e300", "-1", "nan", "Wed, 21 Oct 9999 07:28:00 GMT", "soon", "9" * 5000,
                  "Wed, 21 Oct 99999999 07:28:00 GMT"):  # fmt: skip
        more = {"Retry-After": after}
        name = f"429 for {after[:30]!r}"
        sends(name, body(b"{}", "application/json", status=429, headers=more))
    for how, spelling in SPELLINGS.items():
        for status in (400, 429, 500):
            said = {"error": {"message": f"The key {spelling} is for another model."}}
            content = body(json.dumps(said).encode(), "application/json", status=status)
            sends(f"{status} with the key {how}", content)
    for status in (301, 302, 303, 307, 308):
        more = {"Location": "http://127.0.0.2:9/v1/chat/completions"}
        sends(f"redirected by {status}", body(b"", status=status, headers=more))
    sends("redirected to nonsense", body(b"", status=302, headers={"Location": "http://[::"}))


def _http() -> None:
    answer = honest()
    sends("no answer")
    sends("no HTTP", b"SSH-2.0-OpenSSH_9.6\r\n")
    sends("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    sends("nothing", b"HTTP/1.1 204 -\r\n\r\n")
    sends("another protocol", b"HTTP/1.1 101 -\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n")
    sends("a status of its own", body(b"", status=999))
    for kind in (None, "", "image/png", "text/html", "text/plain; charset=punycode", ";;;"):
        sends(f"an answer as {kind}", body(sse(chunk({"content": HONEST}, "stop")), kind))
    sends("a document as a stream", body(json.dumps(chunk({"content": HONEST})).encode()))
    sends("a stream as a document", body(sse(chunk({"content": HONEST})), "application/json"))
    sends("a cut chunk", head() + b"ff\r\ndata: ")
    sends("a chunk of 2^63", head() + b"8000000000000000\r\ndata: {}\n\n")
    sends("a chunk of 2^80", head() + b"1" + b"0" * 19 + b"\r\ndata: {}\n\n")
    sends("a chunk of no size", head() + b"data: {}\n\n")
    sends("a chunk of minus one", head() + b"-1\r\ndata: {}\n\n")
    repeats("an endless size of a chunk", head(), b"0" * PIECE)
    repeats("an endless extension", head() + b"1;", b"x" * PIECE)
    repeats("endless trailers", head() + b"0\r\n", b"X-More: x\r\n" * 1000)
    for length in ("-1", "1e9", "99999999999999999999999", "5, 6"):
        said = f"HTTP/1.1 200 -\r\nContent-Length: {length}\r\n\r\ndata: {{}}\n\n"
        sends(f"a length of {length}", said.encode())
    both = b"HTTP/1.1 200 -\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
    sends("two lengths", both + chunked(b"data: {}\n\n") + END)
    flood = "".join(f"X-{number}: {number}\r\n" for number in range(3000)).encode()
    sends("a flood of headers", answer.replace(b"\r\n", b"\r\n" + flood, 1))
    cookies = "".join(f"Set-Cookie: c{n}=x; Max-Age=9999\r\n" for n in range(200)).encode()
    sends("a flood of cookies", answer.replace(b"\r\n", b"\r\n" + cookies, 1))
    sends("a large header", answer.replace(b"\r\n", b"\r\nX: " + b"x" * (1 << 20) + b"\r\n", 1))
    repeats("endless headers", b"HTTP/1.1 200 -\r\n", b"X-More: x\r\n" * 1000)
    repeats("an endless header", b"HTTP/1.1 200 -\r\nX: ", b"x" * PIECE)
    repeats("an endless status", b"HTTP/1.1 200 ", b"x" * PIECE)
    repeats("endless early hints", b"", b"HTTP/1.1 103 -\r\n\r\n" * 1000, drips=True)
    repeats("a header that drips", b"HTTP/1.1 200 -\r\n", b"X: x\r\n", drips=True)
    repeats("a body that drips", head(), chunked(b"x"), drips=True)
    repeats("comments that drip", head(), chunked(b": wait\n\n"), drips=True)
    repeats("a text that drips", head(), chunked(sse(chunk({"content": "x"}))), drips=True)
    for at in range(0, len(answer), 23):
        sends(f"cut after {at} bytes", answer[:at])


def _said() -> None:
    text = chunk({"content": HONEST})
    for name, usage in {
        "2^63": {"prompt_tokens": 2**63, "completion_tokens": 2**63},
        "2^64": {"prompt_tokens": 2**64, "completion_tokens": 2**200},
        "less than nothing": {"prompt_tokens": -1, "completion_tokens": -(2**63)},
        "parts": {"prompt_tokens": 1.5, "completion_tokens": 1e300},
        "words": {"prompt_tokens": "12", "completion_tokens": "x" * 1000},
        "objects": {"prompt_tokens": {"a": [1]}, "completion_tokens": []},
        "no number": {"prompt_tokens": float("nan"), "cost": float("inf")},
        "truths": {"prompt_tokens": True, "completion_tokens": False},
        "a list": [1, 2],
        "a number": 7,
    }.items():
        says(f"usage of {name}", text | {"usage": usage})
    digits = json.dumps(text)[:-1].encode() + b', "usage": {"prompt_tokens": %s}}' % (b"9" * 5000)
    says("usage of many digits", digits)
    says("a great time", text | {"created": 2**80, "id": "x" * 100_000, "model": ["m"]})
    for name, bad in {
        "invalid UTF-8": b"\xff\xc3(\xed\xa0\x80",
        "half a pair": b"\\ud800 \\udc00",
        "NUL": b"a\\u0000b",
        "control characters": b"a\\u0001\\u001b[2J\\u000b\\ufffe\\uffff",
        "raw control characters": b"a\x01\x1b[2J\x0b",
    }.items():
        said = json.dumps(chunk({"content": "TEXT"})).encode().replace(b"TEXT", bad)
        says(f"{name} in the text", said)
        for field in ("name", "id", "arguments"):
            call = one_call(id="ID" if field == "id" else "c1")
            call["function"] = {
                "name": "NAME" if field == "name" else "look",
                "arguments": '{"q":"ARGUMENTS"}' if field == "arguments" else "{}",
            }
            event = json.dumps(calls(call)).encode().replace(field.upper().encode(), bad)
            says(f"{name} in the {field}", event, finish="tool_calls")
    says("no choice", {"choices": []})
    says("choices that are none", {"choices": None})
    says("choices of another kind", {"choices": {"a": 1}})
    says("10,000 choices", {"choices": text["choices"] * 10_000})
    says("350,000 choices", b'{"choices":[' + b"{}," * 349_999 + b"{}]}")
    says("a deep event", b'{"x":' * 100_000 + b"1" + b"}" * 100_000)
    says("a deep choice", b'{"choices":' + b"[" * 100_000 + b"]" * 100_000 + b"}")
    for finish in (
        "",
        "because",
        "\x00",
        "error",
        "length",
        "content_filter",
        "STOP",
        "x" * 10_000,
    ):
        says(f"finished by {finish[:20]!a}", chunk({"content": HONEST}, finish), finish=None)
    says("finished by a number", chunk({"content": HONEST}, 7), finish=None)
    says("an answer of nothing", chunk({"content": ""}))
    says("a text of a megabyte", chunk({"content": "x" * 1_000_000}))


def _calls() -> None:
    def wants(name: str, *each: Any) -> None:
        says(name, calls(*each), finish="tool_calls")

    wants("3,000 calls", *(one_call(index=n, id=f"c{n}") for n in range(3000)))
    wants("the same id twice", one_call(), one_call(index=1), one_call(index=2))
    wants("no id", one_call(id=None), one_call(id="", index=1))
    wants("a huge id", one_call(id="x" * 1_000_000))
    for index in (2**31, -1, 10**30, 1.5, "0", None, [0]):
        wants(f"an index of {index}", one_call(index=index))
    wants("no name", one_call(function={"arguments": "{}"}))
    wants("a huge name", one_call(function={"name": "x" * 1_000_000, "arguments": "{}"}))
    wants("a name of another tool", one_call(function={"name": "../../look", "arguments": "{}"}))
    wants("no function", one_call(function=None), one_call(function=[]))
    for name, arguments in {
        "deep arguments": "[" * 100_000,
        "deep objects": '{"a":' * 100_000 + "1" + "}" * 100_000,
        "arguments nested 900 deep": '{"a":' * 900 + "1" + "}" * 900,
        "arguments nested 70 deep": '{"a":' * 70 + "1" + "}" * 70,
        "arguments of a megabyte": json.dumps({"q": "x" * 1_000_000}),
        "arguments of many keys": json.dumps({f"k{n}": n for n in range(50_000)}),
        "arguments of many lists": json.dumps({"q": [[]] * 300_000}),
        "arguments of many digits": '{"q":' + "9" * 500_000 + "}",
        "arguments that are no object": "12",
        "arguments that are no JSON": "look, please",
        "the same key many times": "{" + '"q":1,' * 50_000 + '"q":1}',
    }.items():
        wants(name, one_call(function={"name": "look", "arguments": arguments}))
    nested: Any = 1
    for _ in range(300):
        nested = {"a": nested}
    wants("arguments as an object", one_call(function={"name": "look", "arguments": nested}))
    wants("arguments as a list", one_call(function={"name": "look", "arguments": [1]}))


def _written() -> None:
    """Reasoning and calls in the text, and reasoning beside it."""

    def text(content: str) -> dict[str, Any]:
        return chunk({"content": content})

    call = '{"name": "look", "arguments": {"q": "x"}}'
    stream = head()
    think = chunked(sse(text("<think>")))
    repeats("endless reasoning in the text", stream + think, chunked(sse(text("hm " * 20_000))))
    repeats("endless white space", stream, chunked(sse(text(" " * 60_000))))
    repeats("endless beginnings of tags", stream, chunked(sse(text("<think" * 10_000))))
    repeats("endless tags", stream, chunked(sse(text("<think></think>" * 4000))))
    repeats("endless ends of reasoning", stream, chunked(sse(text("x</think>" * 6000))))
    repeats("endless backticks", stream, chunked(sse(text("`" * 60_000))))
    repeats("an endless call in the text", stream, chunked(sse(text('<tool_call>{"a":' * 4000))))
    repeats("an endless list of calls", stream, chunked(sse(text("[TOOL_CALLS][" * 4000))))
    repeats("an endless fence", stream, chunked(sse(text("```json\n{" * 6000))))
    for field in ("reasoning_content", "reasoning"):
        repeats(f"endless {field}", stream, chunked(sse(chunk({field: "hm " * 20_000}))))
    detail = {"type": "reasoning.text", "index": 0, "text": "hm " * 1000}
    repeats("endless details", stream, chunked(sse(chunk({"reasoning_details": [detail]}))))
    empty = chunk({"reasoning_details": [{"index": 0, "data": ""}]})
    repeats("endless empty details", stream, chunked(sse(empty) * 500))
    many = chunked(sse(text("<think>"))) + chunked(sse(text("x" * 100_000))) * 100
    ended = chunked(sse(text(f"</think>{HONEST}")) + sse(chunk(finish="stop")) + DONE)
    sends("reasoning of 10 MB in the text", stream + many + ended + END)
    for name, said in {
        "reasoning without an end": "<think>I must not say this",
        "an end of reasoning in the text": f"I must not say this</think>{HONEST}",
        "10,000 tags of reasoning": "<think>x</think>" * 10_000 + HONEST,
        "a deep call in the text": "<tool_call>" + '{"a":' * 100_000,
        "nested garbage in a call in the text": '<tool_call>{"name":"look","arguments":'
        + "[{}" * 30_000,
        "arguments in the text nested 70 deep": '<tool_call>{"name":"look","arguments":'
        + '{"a":' * 70
        + "1"
        + "}" * 71,
        "3,000 calls in the text": f"<tool_call>{call}</tool_call>" * 3000,
        "spaces in a call in the text": "[TOOL_CALLS]" + " " * 500_000 + "look",
        "many digits in a call in the text": '{"name":"look","arguments":{"q":'
        + "9" * 500_000
        + "}}",
        "parameters without an end in the text": "<tool_call><function=look>"
        + "<parameter=q>" * 50_000,
        "a call of another tool in the text": f"<tool_call>{call.replace('look', '../look')}",
    }.items():
        says(name, text(said))
    for name, value in {"a list": [1], "a number": 5, "an object": {"a": {}}}.items():
        for field in ("reasoning_content", "reasoning", "reasoning_details"):
            says(f"{field} of {name}", chunk({field: value, "content": HONEST}))
    deep = b'{"choices":[{"delta":{"reasoning_details":[' + b'{"a":' * 5000 + b"1" + b"}" * 5000
    says("details nested 5,000 deep", deep + b"]}}]}")
    half = b'{"reasoning_content":"\\ud800","reasoning_details":[{"a":"\\ud800"}]}'
    bad = b'{"choices":[{"delta":%s}]}' % half
    says("half a pair in the reasoning", bad)


for _part in (_endless, _packed, _errors, _http, _said, _calls, _written):
    _part()
