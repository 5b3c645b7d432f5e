"""`email_send` speaks SMTP with a server on a real socket, and writes only to whom it may."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from email.policy import default
from typing import Any

import anyio
import pytest
import trustme
from anyio.abc import ByteStream, SocketAttribute
from anyio.streams.buffered import BufferedByteReceiveStream
from anyio.streams.tls import TLSStream
from pydantic import ValidationError

from component.features.builtins.email_send import email_send_skill
from component.features.builtins.settings import EmailSend
from component.skills import InvalidParam, Skill
from component.skills.errors import SkillUnavailable
from tests.component.skill_calls import called, text_of

pytestmark = pytest.mark.anyio

MAIL = {"to": "nurse@example.com", "subject": "Späte Ankunft", "text": "I am late.\n.\nJuliet"}


@dataclass
class Mailbox:
    """An SMTP server: what it got, and what it refuses."""

    port: int = 0
    refuses: str = ""
    drops: bool = False
    mails: list[bytes] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)


CA = trustme.CA()
SERVER_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
CA.issue_cert("127.0.0.1").configure_cert(SERVER_TLS)
CLIENT_TLS = ssl.create_default_context()
CA.configure_trust(CLIENT_TLS)


@asynccontextmanager
async def smtp(*, tls: bool = False, **more: Any) -> AsyncIterator[Mailbox]:
    box = Mailbox(**more)

    async def serve(plain: ByteStream) -> None:
        try:
            stream: ByteStream = plain
            if tls:
                stream = await TLSStream.wrap(plain, ssl_context=SERVER_TLS)
            await _talk(box, stream)
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.IncompleteRead, ssl.SSLError):
            return
        finally:
            await anyio.aclose_forcefully(plain)

    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as group,
    ):
        box.port = listener.extra(SocketAttribute.local_port)
        group.start_soon(listener.serve, serve)
        yield box
        group.cancel_scope.cancel()


async def _talk(box: Mailbox, stream: ByteStream) -> None:
    reader = BufferedByteReceiveStream(stream)
    await stream.send(b"220 mail.example.com ESMTP\r\n")
    while True:
        line = (await reader.receive_until(b"\r\n", 2000)).decode()
        word = line.split()[0].upper()
        box.commands.append(word)
        if box.refuses == word:
            await stream.send(b"550 5.7.1 no\r\n")
        elif word == "EHLO":
            await stream.send(b"250-mail.example.com\r\n250-AUTH PLAIN\r\n250 STARTTLS\r\n")
        elif word == "STARTTLS":
            await stream.send(b"220 go\r\n")
            stream = await TLSStream.wrap(stream, ssl_context=SERVER_TLS, server_side=True)
            reader = BufferedByteReceiveStream(stream)
        elif word == "AUTH":
            await stream.send(b"235 welcome\r\n")
        elif word == "DATA":
            if box.drops:
                raise anyio.EndOfStream
            await stream.send(b"354 go\r\n")
            box.mails.append(await reader.receive_until(b"\r\n.\r\n", 100_000))
            await stream.send(b"250 queued\r\n")
        elif word == "QUIT":
            await stream.send(b"221 bye\r\n")
            raise anyio.EndOfStream
        else:
            await stream.send(b"250 ok\r\n")


def mailing(box: Mailbox, **more: Any) -> Skill:
    usual = {"host": "127.0.0.1", "port": box.port, "security": "none"}
    usual |= {"sender": "agent@example.com", "recipients": ["*@example.com"], "timeout_s": 60}
    return email_send_skill(EmailSend(**(usual | more)), tls=CLIENT_TLS)


@pytest.mark.parametrize("security", ["none", "tls", "starttls"])
async def test_a_mail_is_sent(security: str) -> None:
    login = {} if security == "none" else {"username": "agent", "password": "pw"}
    async with smtp(tls=security == "tls") as box:
        result = await called(mailing(box, security=security, **login), MAIL)
    assert text_of(result) == "Sent to nurse@example.com."
    mail = message_from_bytes(box.mails[0], policy=default)
    assert (mail["From"], mail["To"]) == ("agent@example.com", "nurse@example.com")
    assert mail["Subject"] == "Späte Ankunft"
    body = mail.get_content().replace("\r\n", "\n").replace("\n..\n", "\n.\n")  # RFC 5321 §4.5.2
    assert body.startswith("I am late.\n.\nJuliet\n")
    assert "on behalf of juliet@example.com" in body
    assert ("AUTH" in box.commands) == (security != "none")
    assert ("STARTTLS" in box.commands) == (security == "starttls")


@pytest.mark.parametrize(
    "params",
    [
        {"subject": "x\r\nBcc: evil@example.org"},
        {"to": "nurse@example.com\r\nBcc: evil@example.org"},
        {"to": "nurse@example.com, evil@example.org"},
        {"to": "Nurse <nurse@example.com>"},
        {"text": "x" * 20_001},
    ],
)
async def test_a_header_cannot_be_added(params: dict[str, Any]) -> None:
    async with smtp() as box:
        with pytest.raises(InvalidParam):
            await called(mailing(box), MAIL | params)
    assert box.commands == []


async def test_others_are_not_written_to_and_mails_are_limited() -> None:
    async with smtp() as box:
        skill = mailing(box, per_hour=1)
        stranger = await called(skill, MAIL | {"to": "nurse@example.org"})
        assert "not permitted" in text_of(stranger)
        assert not (await called(skill, MAIL)).is_error
        assert "as many mails" in text_of(await called(skill, MAIL))
    assert len(box.mails) == 1


@pytest.mark.parametrize("word", ["RCPT", "MAIL", "DATA"])
async def test_what_the_server_refuses_is_told(word: str) -> None:
    async with smtp(refuses=word) as box:
        result = await called(mailing(box), MAIL)
    assert result.is_error
    assert "550 5.7.1 no" in text_of(result)


async def test_whether_a_mail_may_have_been_sent_is_told() -> None:
    async with smtp(drops=True) as box:
        with pytest.raises(SkillUnavailable) as failure:
            await called(mailing(box), MAIL)
        assert failure.value.begun
    with pytest.raises(SkillUnavailable) as failure:  # nobody listens any more
        await called(mailing(box), MAIL)
    assert not failure.value.begun


async def test_a_certificate_of_nobody_is_refused() -> None:
    usual = {"host": "127.0.0.1", "security": "tls", "sender": "a@example.com"}
    async with smtp(tls=True) as box:
        settings = EmailSend(port=box.port, recipients=("*",), **usual)  # type: ignore[arg-type]
        with pytest.raises(SkillUnavailable, match="SSLCertVerificationError"):
            await called(email_send_skill(settings), MAIL)
    assert box.mails == []


def test_email_send_declares_its_effects_and_checks_its_settings() -> None:
    skill = mailing(Mailbox(port=25))
    assert skill.annotations.destructive
    assert skill.annotations.open_world
    assert skill.capabilities == ("network:127.0.0.1:25:smtp", "email:send")
    for wrong in ({"sender": "a b@x"}, {"username": "x"}, {"recipients": []}):
        with pytest.raises(ValidationError):
            mailing(Mailbox(port=25), **wrong)
