"""The sessions of ad-hoc commands: the stage of each command (XEP-0050 §3, "Session Lifetime").

Sessions are kept in memory, limited in number, and removed some minutes after their last use. A
session id contains a message authentication code that proves that this service created it, so an
expired session is distinguished from one that never existed without storing anything.
"""

import hashlib
import hmac
from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import Literal

import anyio
import msgspec

from component import system
from xep.binding import Payload
from xep.commands import BadSessionId, Command, SessionExpired
from xep.data_forms import Form
from xep.fluux_agent import errors
from xep.jid import JID
from xep.stanza_error import StanzaError

_ID_BYTES = 16
_MARK_BYTES = 8
_RETRY_S = 60
_UNKNOWN = (
    "I don't know this form any more, perhaps because I was restarted. Please start the command"
    " again."
)

Stage = Literal["open", "running", "ended"]
"""``open`` waits for its form, ``running`` for its work; an ``ended`` session answers
repetitions.
"""


class CommandSession(msgspec.Struct, eq=False):
    """One session: its requester, command and stage.

    Attributes:
        attempts: how often the work was started; more than once only if the parameters were not
            valid.
        given: the form that was submitted last.
        answer: the last answer, which a repetition gets again.
        done: set when the work is over, if somebody can wait for it.
    """

    id: str
    requester: JID
    target: JID
    node: str
    lang: str | None
    stage: Stage = "open"
    attempts: int = 0
    given: Form | None = None
    answer: Command | None = None
    error: StanzaError | None = None
    done: anyio.Event | None = None
    used: float = 0.0

    @property
    def key(self) -> str:
        """The key that identifies a repetition of its work (FAC-006): the session, and the attempt.
        Invalid parameters counted as separate work if the skill itself rejected them.
        """
        return self.id if self.attempts == 1 else f"{self.id}#{self.attempts}"

    def settle(self, stage: Stage, answer: Command | None, error: StanzaError | None) -> None:
        """Set the outcome and wake the tasks that wait for it."""
        self.stage = stage
        self.answer = answer
        self.error = error
        if self.done is not None:
            self.done.set()
            self.done = None

    def repeated(self) -> Command:
        """Return the last answer. Raises StanzaError if that was an error."""
        if self.answer is None:
            raise self.error or errors.outcome_unknown()
        return self.answer


class CommandSessions:
    """The sessions of all principals.

    A principal may have as many as are still free, and at most `each`; its own sessions are dropped
    to make room for more. So a principal without a session gets one, however many the others have.
    `lifetime_s` is the number of seconds after its last use for which a session is kept. `admins`
    are bare addresses that can also use the last `reserved` of them. `tag` identifies this instance
    at the beginning of each session id.
    """

    def __init__(
        self,
        clock: Callable[[], float] = anyio.current_time,
        *,
        lifetime_s: float = 600.0,
        each: int = 8,
        total: int = 512,
        admins: Collection[JID] = (),
        reserved: int = 16,
        tag: str = "",
    ) -> None:
        self._clock = clock
        self._lifetime_s = lifetime_s
        self._each = each
        self._total = total
        self._tag = tag
        self._admins = admins
        self._reserved = reserved
        self._secret = system.token_bytes(32)
        # Least recently used first.
        self._sessions: OrderedDict[str, CommandSession] = OrderedDict()
        self._own: dict[JID, list[CommandSession]] = {}  # by principal, oldest first

    def __len__(self) -> int:
        """Return the number of sessions, without expired ones."""
        self._forget()
        return len(self._sessions)

    def begin(self, requester: JID, target: JID, node: str, lang: str | None) -> CommandSession:
        """Create a session. If there is no room, the principal's oldest one that is not running is
        dropped. Raises StanzaError: `resource-constraint`, when there is no room.
        """
        self._forget()
        principal = requester.bare
        while own := self._own.get(principal, []):
            if len(own) < min(self._each, self._free(principal)):
                break
            self._drop(own)
        if self._free(principal) <= 0:
            ended = [each for each in self._sessions.values() if each.stage == "ended"]
            most = max(self._own.values(), key=len, default=[])
            self._drop(ended or (most if len(most) > 1 else []))
        random = self._tag + system.token_hex(_ID_BYTES)
        id_ = random + self._mark(random, requester, target)
        session = CommandSession(id_, requester, target, node, lang, used=self._clock())
        self._sessions[session.id] = session
        self._own.setdefault(principal, []).append(session)
        return session

    def _free(self, principal: JID) -> int:
        reserved = self._reserved if self._admins and principal not in self._admins else 0
        return self._total - len(self._sessions) - reserved

    def find(self, id_: str, requester: JID, target: JID, node: str) -> CommandSession:
        """Return the session of this requester, at this address, of this command; this counts as a
        use. Raises StanzaError: `not-allowed` with <session-expired/> when it has ended,
        `bad-request` with <bad-sessionid/> when it never existed (XEP-0050 §4.4).
        """
        self._forget()
        session = self._sessions.get(id_)
        if session is None and self._is_ours(id_, requester, target):
            raise expired_session()
        if session is None or (session.requester, session.target, session.node) != (
            requester,
            target,
            node,
        ):
            raise bad_command(BadSessionId(), _UNKNOWN)
        session.used = self._clock()
        self._sessions.move_to_end(id_)
        return session

    def _drop(self, those: list[CommandSession]) -> None:
        """Drop one of those that are not running. Raises StanzaError if all are."""
        idle = [each for each in those if each.stage != "running"]
        if not idle:
            raise errors.busy(_RETRY_S)
        # Prefer an ended session to one whose form somebody is filling in.
        self._remove(next((each for each in idle if each.stage == "ended"), idle[0]))

    def _remove(self, session: CommandSession) -> None:
        del self._sessions[session.id]
        principal = session.requester.bare
        own = self._own[principal]
        own.remove(session)
        if not own:
            del self._own[principal]

    def _forget(self) -> None:
        now = self._clock()
        while self._sessions:
            session = next(iter(self._sessions.values()))
            if session.used + self._lifetime_s > now:
                return
            if session.stage == "running":
                session.used = now
                self._sessions.move_to_end(session.id)
            else:
                self._remove(session)

    def _is_ours(self, id_: str, requester: JID, target: JID) -> bool:
        random, mark = id_[: -2 * _MARK_BYTES], id_[-2 * _MARK_BYTES :]
        return hmac.compare_digest(
            self._mark(random, requester, target).encode(), mark.encode("utf-8", "replace")
        )

    def _mark(self, random: str, requester: JID, target: JID) -> str:
        text = f"{random}\n{requester}\n{target}".encode("utf-8", "replace")
        return hashlib.blake2b(text, key=self._secret, digest_size=_MARK_BYTES).hexdigest()


def bad_command(condition: Payload, text: str) -> StanzaError:
    """Return ``bad-request`` with a condition of XEP-0050 §4.4."""
    return StanzaError("bad-request", text, application=(condition,))


def expired_session() -> StanzaError:
    """Return ``not-allowed`` with <session-expired/> (XEP-0050 §4.4)."""
    return StanzaError(
        "not-allowed",
        "This session has ended. Start the command again.",
        application=(SessionExpired(),),
    )
