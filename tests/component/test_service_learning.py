"""A whole service learns from a conversation."""

import json
from pathlib import Path

import pytest

from component.models.protocol import ModelRequest
from tests.kit import Script, anyio_backend, service

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

FACT = {"key": "dog_name", "text": "Romeo's dog is called Bello.", "lasting": True, "message": 1}
SAID = "My dog is called Bello."


def answer(request: ModelRequest) -> str:
    """Return what the model answers: facts if it is asked for them."""
    system, *_, last = request.messages
    if system.text.startswith("You read what a person has said"):
        return json.dumps({"facts": [FACT] if SAID in last.text else []})
    return "Answer: noted."


async def test_a_fact_is_learned_after_a_conversation_and_known_in_the_next(tmp_path: Path) -> None:
    model = Script(otherwise=answer)
    memory = {"path": tmp_path / "memory", "learn_after_mins": 10}
    user = tmp_path / "memory" / "romeo@capulet.example" / "user.md"
    async with service(tmp_path, {"memory": memory}, model=model) as kit:
        romeo = kit.peer("romeo@capulet.example/orchard")
        await romeo.ask(SAID, "Answer: ")
        assert not user.exists(), "nothing is learned while people talk"
        await kit.jump(660, stride_s=60)
        assert FACT["text"] in user.read_text()
        await romeo.ask("What do you know about me?", "Answer: ")
        assert FACT["text"] in model.asked
        await kit.jump(660, stride_s=60)
        assert "- dog_name: Romeo's dog is called Bello." in model.asked
