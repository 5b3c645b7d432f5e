"""The skill `email_send`: an agent sends email on behalf of a person.

The person confirms each mail as it will be sent, because the skill is destructive.
"""

from __future__ import annotations

import re
import smtplib
import ssl
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate, make_msgid
from typing import Annotated

from msgspec import Meta

from component import system
from component.features.builtins.settings import MAILBOX, EmailSend
from component.kernel.guarded_messages import HourlyLimit
from component.policy.globs import pattern
from component.skills.context import Context
from component.skills.declare import own_skill
from component.skills.errors import InvalidParam, SkillError, SkillUnavailable
from component.skills.free_texts import FREE_TEXT
from component.skills.skill import Skill

_STEPS = 6
_REFUSALS = (smtplib.SMTPRecipientsRefused, smtplib.SMTPSenderRefused, smtplib.SMTPDataError)


def email_send_skill(settings: EmailSend, *, tls: ssl.SSLContext | None = None) -> Skill:
    """Return the skill. `tls` verifies certificates; the default uses the system's authorities."""
    allowed = pattern([each.lower() for each in settings.recipients])
    limit = HourlyLimit(settings.per_hour)
    host, port = settings.address

    @own_skill(
        title="Send an email",
        question="May I send an email to {to} with the subject {subject}: {text}?",
        destructive=True,
        open_world=True,
        capabilities=(f"network:{host}:{port}:smtp", "email:send"),
        # It returns nothing that others have written.
        taint="person",
        tags=("email", "message"),
        examples=("Write to nurse@example.com that I am late.",),
        timeout=settings.timeout_s * _STEPS,
        typical_duration=2.0,
        cost_usd=0.0,
    )
    def email_send(
        context: Context,
        to: Annotated[str, Meta(description="Email address.", max_length=320)],
        subject: Annotated[
            str, Meta(description="Subject, one line.", min_length=1, max_length=200), FREE_TEXT
        ],
        text: Annotated[str, Meta(description="Text of the mail.", min_length=1), FREE_TEXT],
    ) -> str:
        """Send an email to somebody on behalf of the person.

        The person is shown the mail and confirms it before it is sent.
        """
        if not re.fullmatch(MAILBOX, to):
            raise InvalidParam("to", "is not an email address such as nurse@example.com")
        if not subject.isprintable():
            raise InvalidParam("subject", "must be one line without control characters")
        if len(text) > settings.max_characters:
            raise InvalidParam("text", f"has more than {settings.max_characters} characters")
        if not allowed.fullmatch(to.lower()):
            raise SkillError(f"I am not permitted to write to {to}.")
        now = system.monotonic()
        if limit.full(context.principal, now):
            raise SkillError("I have sent as many mails as I may in an hour. Try again later.")
        limit.count(context.principal, now)
        _send(settings, _mail(settings, context, to, subject, text), tls)
        return f"Sent to {to}."

    return email_send


def _mail(settings: EmailSend, context: Context, to: str, subject: str, text: str) -> EmailMessage:
    mail = EmailMessage(policy=SMTP)
    mail["From"], mail["To"], mail["Subject"] = settings.sender, to, subject
    mail["Date"] = formatdate(usegmt=True)
    mail["Message-ID"] = make_msgid(domain=settings.sender.rpartition("@")[2])
    mail["Auto-Submitted"] = "auto-generated"  # RFC 3834: no automatic replies to it
    mail.set_content(f"{text}\n\n-- \nSent by an agent on behalf of {context.principal}.\n")
    return mail


def _send(settings: EmailSend, mail: EmailMessage, tls: ssl.SSLContext | None) -> None:
    """Send a mail. Raises SkillError if the server refuses it, and SkillUnavailable."""
    begun = False
    try:
        with _connected(settings, tls or ssl.create_default_context()) as server:
            if settings.username:
                server.login(settings.username, settings.password.get_secret_value())
            begun = True
            server.send_message(mail)
    except smtplib.SMTPAuthenticationError:
        raise SkillError("The mail server refuses the user name or the password.") from None
    except _REFUSALS as error:
        raise SkillError(f"The mail server refuses the mail: {_reason(error)}") from error
    except (smtplib.SMTPException, OSError) as error:
        reason = f"The mail server {settings.host} cannot be used: {type(error).__name__}."
        raise SkillUnavailable(reason, begun=begun) from error


def _connected(settings: EmailSend, context: ssl.SSLContext) -> smtplib.SMTP:
    host, port = settings.address
    if settings.security == "tls":
        return smtplib.SMTP_SSL(host, port, timeout=settings.timeout_s, context=context)
    server = smtplib.SMTP(host, port, timeout=settings.timeout_s)
    if settings.security == "starttls":
        try:
            server.starttls(context=context)
        except BaseException:
            server.close()
            raise
    return server


def _reason(error: smtplib.SMTPException) -> str:
    text: bytes | str
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        code, text = next(iter(error.recipients.values()))
    else:
        assert isinstance(error, smtplib.SMTPResponseException)
        code, text = error.smtp_code, error.smtp_error
    told = text.decode(errors="replace") if isinstance(text, bytes) else str(text)
    return f"{code} {' '.join(told.split())[:200]}"
