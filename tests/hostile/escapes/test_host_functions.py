"""Attacks of a confined skill through the functions of the service that it has: each is refused or
ends the call, the reason is named, and calls of others succeed meanwhile.
"""

import re
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec
import pytest

from component.config.skills import XmppSend
from component.kernel.guarded_messages import GuardedMessages, Sending
from component.skill_directories.host_functions import Credential, Services
from component.skills import Context
from component.skills.calling import Threads, call
from component.skills.fake_context import FakeContext
from component.skills.operations import Parked
from component.skills.params import prepare
from component.store import Storage
from tests.component.features.installed_skills.world import World, install, opened
from tests.component.http.http_server import plain, redirect, serving
from tests.hostile.escapes import host_module
from tests.profiles import THOROUGH
from xep.jid import JID

pytestmark = pytest.mark.anyio
SECRET: Final = "s3cret-of-the-service"
CAPABILITIES: Final = """
network = ["http://127.0.0.1:{port}", "http://localhost:{port}"]
credential = ["key"]
memory_write = ["skill"]
xmpp = ["romeo@example.com"]
"""
LIMITS: Final = """
timeout_s = {timeout_s}
durable = true
"""
SHORT_S: Final = 2
"""The time of the attack that needs all of it. The others have as much as a busy machine takes."""

HOSTILE: Final = Path(str(host_module.__file__)).read_text()
ENDS: Final = {
    "other_memories": r"\[\]",
    "redirected_credential": r"lacks the capability network:http://127.0.0.1:\d",
    "redirected_within": "seen:",
    "echoed_credential": r"\[credential\]",
    "credential_for_another": "refused: The credential key is not for localhost",
    "header_lines": "refused: ",
    "credential_names": "lacks the capability credential:key",
    "too_many_messages": "refused: I have sent as many messages",
    "hanging": f"did not finish within {SHORT_S} seconds|takes more than {SHORT_S} s",
    "no_object": "refused: A person is asked for an object",
    "endless_sleep": "refused: inf is not a time",
    "sleep_of_no_number": "refused: nan is not a time",
    "huge_step": "refused: the name or key of a step",
    "twice_the_same": "more than 64 things at once",
    "result_that_is_no_json": "refused: .* its result is not JSON",
    "result_of_many_values": "refused: .* at most 100000 values",
    "input_of_many_values": "refused: expected JSON of at most 100000 values",
    "what_nobody_asked": "refused: nothing",
    "nested_input": "refused: expected JSON nested at most 64 deep",
    "undeclared": "lacks the capability xmpp:tybalt@example.com",
    "wrong_fraction": "refused: progress goes from 0 to 1",
    "many_keys": "refused: The skill has 1000 keys",
    "questions_beside": "more than 64 things at once|Parked",
    "sleeps_beside": "more than 64 things at once|more than 10,000 times",
    "memories_at_once": "more than 64 things at once",
}
"""The attacks, with how they end."""

RECIPIENTS: Final = ("romeo@EXAMPLE.com", "romeo@example.com/balcony", "*@example.com") + (
    ("tybalt@example.com", "ROMEO@example.com", "romeo@example.com ", "romeo@example.com\u200b", "")
    if THOROUGH
    else ()
)
"""Others than the one that is declared; each costs a process."""


class Messages(Sending):
    """Sends nothing."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    def refusal(self, agent: str, person: JID) -> str | None:
        return None

    async def knows(self, agent: str, person: JID) -> bool:
        return True

    def send(self, agent: str, person: JID, text: str, key: str) -> None:
        self.sent.append(str(person))

    def title(self, agent: str) -> str:
        return "Ada"


class Asking(FakeContext):
    """A context with the functions of the service, in which a question parks the call."""

    def __init__(self, principal: str) -> None:
        super().__init__(principal=principal, answers=[Parked()])
        self._functions = None


async def said(world: World, what: str, url: str, principal: str = "mallory@test") -> str:
    skill = world.registry.get("impatient" if what == "hanging" else "hostile")
    assert skill is not None
    arguments = prepare(skill, (), msgspec.json.encode({"what": what, "url": url}))
    share = Threads(4, 4).share(principal)
    try:
        result = await call(skill, arguments, Asking(principal), share)
    except (Exception, Parked) as error:  # noqa: BLE001 - what it is, is compared
        return f"{type(error).__name__}: {error}"
    return "".join(part.text for part in result.outputs)


async def honest(world: World) -> str:
    skill = world.registry.get("greet")
    assert skill is not None
    arguments = prepare(skill, (), b'{"who": "Ann"}')
    context = Context(principal="ann@test", sender="ann@test/x", skill="greet")
    result = await call(skill, arguments, context, Threads(4, 4).share("ann"))
    return result.outputs[0].text


async def test_each_attack_is_stopped(storage: Storage, tmp_path: Path) -> None:
    root = tmp_path / "skills"
    settings = XmppSend(recipients=("*",), per_recipient_per_hour=20)
    messages = Messages()
    guarded = GuardedMessages(settings, messages)
    services = Services(
        credentials={"key": Credential(value=SECRET, hosts=("127.0.0.1",))},
        storage=storage,
        messages=lambda: guarded.send,
    )
    async with serving() as server, serving() as elsewhere:
        server.answers["away"] = redirect(f"http://127.0.0.1:{elsewhere.port}/caught")
        server.answers["within"] = redirect(f"http://localhost:{server.port}/seen")
        server.answers["seen"] = plain("seen: nothing")
        echo = plain(f"it was Bearer {SECRET}", 200, f"X-Echo: {SECRET}")
        server.answers["echo"] = echo
        install(root)
        for name, timeout_s in (("hostile", 60), ("impatient", SHORT_S)):
            capabilities = CAPABILITIES.replace("{port}", str(server.port))
            code = HOSTILE.replace('name="hostile"', f'name="{name}"')
            install(root, name, code=code, capabilities=capabilities)
            manifest = root / name / "skill.toml"
            text = manifest.read_text().replace("read_only = true", "")
            manifest.write_text(text + LIMITS.format(timeout_s=timeout_s))
        async with opened(storage, root, services=services) as world:
            await world.directories.approve("greet", "admin@test")
            await world.directories.approve("hostile", "admin@test")
            await world.directories.approve("impatient", "admin@test")
            await _remember(storage)
            escaped = {}
            for name, expected in ENDS.items():
                heard = await _beside(world, name, server.url("").rstrip("/"))
                if not re.search(expected, heard) or SECRET in heard:
                    escaped[name] = heard
            for recipient in RECIPIENTS:
                heard = await said(world, "recipients", recipient)
                if "lacks the capability xmpp:" not in heard:
                    escaped[recipient] = heard
        assert not escaped, "\n".join(f"{name}: {heard}" for name, heard in escaped.items())
        assert not elsewhere.requests
        seen = [one for one in server.requests if b"GET /seen" in one]
        assert seen
        assert SECRET.encode() not in seen[0], "the credential follows no redirect"
        assert set(messages.sent) == {"romeo@example.com"}
        assert len(messages.sent) <= 20


async def _remember(storage: Storage) -> None:
    """Give another skill, and another principal of the same one, memories to be found."""

    def op(database: Any) -> None:
        for row in (
            ("hostile", "ann@test", "other", SECRET),
            ("greet", "mallory@test", "other", SECRET),
            *(("hostile", "eve@test", f"key {number}", "") for number in range(998)),
        ):
            database.execute(
                "INSERT INTO skill_memories (skill, principal, name, value) VALUES (?, ?, ?, ?)",
                row,
            )

    await storage.write(op)


async def _beside(world: World, name: str, url: str) -> str:
    """Attack beside an honest call, and return what was said."""
    found = ""

    async def attack() -> None:
        nonlocal found
        principal = "eve@test" if name == "many_keys" else "mallory@test"
        found = await said(world, name, url, principal)

    with anyio.fail_after(120):
        async with anyio.create_task_group() as group:
            group.start_soon(attack)
            assert await honest(world) == "Hello Ann"
    return found
