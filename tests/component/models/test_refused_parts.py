"""Parts of a conversation that a provider refuses are left out of the request, in every dialect."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.models.contents import media_type_of, part_digest, refused_parts, without_parts
from component.models.faults import Fault
from component.models.messages import (
    FilePart,
    ImagePart,
    ModelMessage,
    OpaquePart,
    TextPart,
    ToolCall,
    ToolResultPart,
    text_message,
)
from component.models.protocol import ModelRefusedError, ModelRequest
from tests.component.models.asking import Make, Slept
from tests.component.models.endpoint import Answer, Endpoint, Refuse, Request, Text

pytestmark = pytest.mark.anyio
PNG = b"\x89PNG\r\n\x1a\n" + b"x" * 40
JPEG = b"\xff\xd8\xff\xe0" + b"y" * 40
SEALED: dict[str, Any] = {
    "chat": {"reasoning_details": [{"type": "reasoning.encrypted", "data": "SEALED"}]},
    "responses": {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "SEALED"},
    "messages": {"type": "thinking", "thinking": "Hm.", "signature": "SEALED"},
}
REFUSALS: dict[str, list[Refuse]] = {
    "chat": [
        Refuse(400, "Corrupted thought signature.", code="invalid_argument"),
        Refuse(400, "messages[1].reasoning_details: it is expired"),
        Refuse(400, body={"error": {"message": "Provider returned error", "code": 400, "metadata":
            {"raw": '{"error":{"message":"Invalid `signature` in `thinking` block"}}'}}}),
    ],
    "responses": [
        Refuse(400, "The encrypted content SEAL... could not be verified. Reason: Encrypted content"
               " could not be decrypted or parsed.", code="invalid_encrypted_content"),
        Refuse(404, "Item with id 'rs_1' not found. Items are not persisted when `store` is set to"
               " false."),
        Refuse(400, "Invalid 'input[1].id': string too long. Expected a string with maximum length"
               " 64.", code="string_above_max_length"),
        Refuse(400, "Item 'rs_1' of type 'reasoning' was provided without its required following"
               " item."),
    ],
    "messages": [
        Refuse(400, "messages.1.content.0: Invalid `signature` in `thinking` block"),
        Refuse(400, "messages.1.content.0.thinking.signature: Field required"),
        Refuse(400, "messages.1.content.0: `thinking` or `redacted_thinking` blocks in the latest"
               " assistant message cannot be modified."),
    ],
}  # fmt: skip


@pytest.fixture(params=["chat", "responses", "messages"])
def speech(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def sealed(speech: str) -> OpaquePart:
    return OpaquePart(f"{speech}/m", msgspec.Raw(json.dumps(SEALED[speech]).encode()))


def images(*data: bytes) -> ModelRequest:
    parts = tuple(ImagePart("image/png", each) for each in data)
    return ModelRequest(messages=(ModelMessage("user", (TextPart("Look."), *parts)),))


@pytest.mark.parametrize(
    ("speech", "refusal"), [(name, each) for name in REFUSALS for each in REFUSALS[name]]
)
async def test_reasoning_that_is_refused_is_left_out_and_named_in_the_answer(
    endpoint: Endpoint, make: Make, slept: Slept, speech: str, refusal: Refuse
) -> None:
    endpoint.otherwise = lambda r: refusal if "SEALED" in json.dumps(r.body) else Text("Noon.")
    answered = ModelMessage("assistant", (sealed(speech), TextPart("It is eleven.")))
    messages = (text_message("user", "Time?"), answered, text_message("user", "And now?"))
    model = make(dialect=speech)
    completion = await model.complete(ModelRequest(messages=messages))
    assert completion.text == "Noon."
    assert completion.refused == {part_digest(sealed(speech))}
    assert len(endpoint.requests) == 2
    assert "It is eleven." in json.dumps(endpoint.requests[1].body), "the rest stays"
    assert slept.pauses == []


async def test_an_image_has_the_type_of_its_content(
    endpoint: Endpoint, make: Make, speech: str
) -> None:
    endpoint.otherwise = Text("I see.")
    model = make(dialect=speech, vision=True)
    await model.complete(images(JPEG, b"<svg/>", b""))
    sent = json.dumps(endpoint.requests[0].body)
    assert "image/jpeg" in sent
    assert sent.count("that this model cannot see") == 2
    file = FilePart("a.pdf", "application/pdf", b"<html>no PDF</html>")
    await model.complete(ModelRequest(messages=(ModelMessage("user", (file,)),)))
    assert "cannot read" in json.dumps(endpoint.requests[1].body)


def path_of(speech: str, at: int) -> str:
    return {
        "chat": f"Invalid 'messages[0].content[{at}].image_url': it is wrong",
        "responses": f"Invalid 'input[0].content[{at}].image_url': it is wrong",
        "messages": f"messages.0.content.{at}.image.source.base64: Could not process image",
    }[speech]


async def test_only_the_image_that_a_refusal_names_is_left_out(
    endpoint: Endpoint, make: Make, speech: str
) -> None:
    endpoint.answers(Refuse(400, path_of(speech, 2)), Text("I see."))
    completion = await make(dialect=speech, vision=True).complete(images(PNG, JPEG))
    assert completion.refused == {part_digest(ImagePart("image/jpeg", JPEG))}
    sent = json.dumps(endpoint.requests[1].body)
    assert ("image/png" in sent, "image/jpeg;" in sent) == (True, False)
    assert "An image" in sent


@pytest.mark.parametrize(
    "refusal",
    [
        Refuse(400, "You uploaded an unsupported image.", code="invalid_image_format"),
        Refuse(400, "Could not process image"),
        Refuse(404, "No endpoints found that support image input"),
        Refuse(500, "Failed to load image or audio file"),
        Refuse(422, "messages[0]: unknown variant `image_url`, expected `text`"),
        Refuse(400, "image exceeds 5 MB maximum: 7123456 bytes > 5242880 bytes"),
    ],
)
async def test_all_images_are_left_out_after_a_refusal_that_names_none(
    endpoint: Endpoint, make: Make, speech: str, refusal: Refuse
) -> None:
    endpoint.answers(refusal, Text("Noon."))
    completion = await make(dialect=speech, vision=True).complete(images(PNG, JPEG))
    assert len(completion.refused) == 2
    assert "base64" not in json.dumps(endpoint.requests[1].body)


async def test_an_image_of_a_tool_is_left_out_of_its_result(
    endpoint: Endpoint, make: Make, speech: str
) -> None:
    endpoint.answers(Refuse(400, "Could not process image"), Text("Noon."))
    result = ToolResultPart("c1", (TextPart("A picture."), ImagePart("image/png", PNG)))
    messages = (
        text_message("user", "Draw."),
        ModelMessage("assistant", (ToolCall("c1", "draw", "{}"),)),
        ModelMessage("tool", (result,)),
    )
    model = make(dialect=speech, vision=True)
    completion = await model.complete(ModelRequest(messages=messages))
    assert len(completion.refused) == 1
    sent = json.dumps(endpoint.requests[1].body)
    assert "A picture." in sent
    assert "An image" in sent
    assert "base64" not in sent


async def test_after_a_second_refusal_all_parts_of_that_kind_are_left_out(
    endpoint: Endpoint, make: Make, speech: str
) -> None:
    def answer(request: Request) -> Answer:
        bad = "base64" in json.dumps(request.body)
        return Refuse(400, path_of(speech, 1) + ": invalid image") if bad else Text("Noon.")

    endpoint.otherwise = answer
    completion = await make(dialect=speech, vision=True).complete(images(PNG, JPEG, PNG + b"z"))
    assert len(completion.refused) == 3
    assert len(endpoint.requests) == 3


async def test_a_refusal_of_nothing_that_is_there_is_reported(
    endpoint: Endpoint, make: Make, speech: str
) -> None:
    endpoint.otherwise = Refuse(400, "Could not process image")
    with pytest.raises(ModelRefusedError, match="Could not process image"):
        await make(dialect=speech).complete(ModelRequest(messages=(text_message("user", "Hi"),)))
    assert len(endpoint.requests) == 1


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (PNG, "image/png"),
        (JPEG, "image/jpeg"),
        (b"GIF89a..", "image/gif"),
        (b"RIFF\x00\x00\x00\x00WEBPVP8 ", "image/webp"),
        (b"\x00\x00\x00\x1cftypheic", "image/heic"),
        (b"\n%PDF-1.7", "application/pdf"),
        (b"RIFF\x00\x00\x00\x00WAVE", ""),
        (b"", ""),
    ],
)
def test_the_type_of_a_file_is_read_from_its_first_bytes(data: bytes, kind: str) -> None:
    assert media_type_of(data) == kind


@given(st.text() | st.from_regex(r"(messages|input)([\[.][0-9a-z]{1,3}\]?){1,5}: bad"))
def test_any_path_in_a_refusal_is_followed(message: str) -> None:
    body = json.dumps({"messages": [{"role": "user", "content": [{"type": "image"}]}], "input": 7})
    request = images(PNG)
    found = refused_parts(Fault(400, message), body.encode(), request.messages, "chat/m")
    assert len(found) <= 1


def test_omitted_parts_leave_a_sentence_or_nothing() -> None:
    image, file = ImagePart("image/png", PNG), FilePart("a.pdf", "application/pdf", b"%PDF-")
    parts = (TextPart("a"), sealed("chat"), image, file)
    assert without_parts(parts, ()) == parts
    digests = {part_digest(part) for part in (sealed("chat"), image, file)}
    kept = without_parts(parts, digests)
    assert [type(part) for part in kept] == [TextPart, TextPart, TextPart]
