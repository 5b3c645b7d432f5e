"""The sessions of ad-hoc commands: who is at which stage of what (XEP-0050 §3, "Session Lifetime").

Kept in memory, bounded in number, and gone some minutes after they were last used. An id carries a
mark by which it is known as one of ours even when its session has gone, so nothing has to be
remembered to tell an expired session from one that never was.
"""

import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import Literal

import anyio

from xep.binding import Payload
from xep.commands import BadSessionId, Command, SessionExpired
from xep.data_forms import Form
from xep.fluux_agent import errors
from xep.jid import JID
from xep.stanza_error import StanzaError

_ID_BYTES = 16
_MARK_BYTES = 8
_RETRY_S = 60

Stage = Literal["open", "running", "ended"]
"""``open`` waits for its form, ``running`` for its work; ``ended`` is kept for repetitions."""


class Session:
    """One session: of whom, with what, and how it stands.

    Attributes:
        id: its id on the wire.
        requester: the full JID that it belongs to.
        target: the address of ours it was begun at.
        node: the command.
        lang: the language that it was begun in.
        stage: where it is.
        attempts: how often work was begun; more than one only if the parameters did not fit.
        given: the form that was submitted last.
        answer: what was answered last; the same again for a repetition.
        error: what is raised instead, if the end was an error.
        done: set when the work is over, if somebody can wait for it.
    """

    __slots__ = (
        "answer",
        "attempts",
        "done",
        "error",
        "given",
        "id",
        "lang",
        "node",
        "requester",
        "stage",
        "target",
        "used",
    )

    def __init__(self, id_: str, requester: JID, target: JID, node: str, lang: str | None) -> None:
        self.id = id_
        self.requester = requester
        self.target = target
        self.node = node
        self.lang = lang
        self.stage: Stage = "open"
        self.attempts = 0
        self.given: Form | None = None
        self.answer: Command | None = None
        self.error: StanzaError | None = None
        self.done: anyio.Event | None = None
        self.used = 0.0

    @property
    def key(self) -> str:
        """What knows a repetition of its work (FAC-006): the session, and which attempt it is.

        Parameters that did not fit were work of their own, if a skill found that out itself.
        """
        return self.id if self.attempts == 1 else f"{self.id}#{self.attempts}"

    def settle(self, stage: Stage, answer: Command | None, error: StanzaError | None) -> None:
        """What it has come to; whoever waits for it goes on."""
        self.stage = stage
        self.answer = answer
        self.error = error
        if self.done is not None:
            self.done.set()
            self.done = None

    def repeated(self) -> Command:
        """What was answered last. Raises StanzaError if that was an error."""
        if self.answer is None:
            raise self.error or errors.outcome_unknown()
        return self.answer


class Sessions:
    """The sessions of everybody.

    A principal may have as many as are still free, and `each` at most; its own make room for more.
    So somebody who has none finds room, however many others have.

    Args:
        clock: seconds that only go forward; the event loop's by default.
        lifetime_s: seconds after its last use for which a session is kept.
        each: how many sessions a principal may have.
        total: how many there may be.
        admins: bare addresses that can have the last `reserved` of them too.
        reserved: see `admins`.
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
    ) -> None:
        self._clock = clock
        self._lifetime_s = lifetime_s
        self._each = each
        self._total = total
        self._admins = frozenset(admins)
        self._reserved = reserved if admins else 0
        self._secret = secrets.token_bytes(32)
        # Those used longest ago come first.
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._own: dict[JID, list[Session]] = {}  # by principal, those begun first come first

    def __len__(self) -> int:
        """How many there are, the expired ones aside."""
        self._forget()
        return len(self._sessions)

    def begin(self, requester: JID, target: JID, node: str, lang: str | None) -> Session:
        """A new session. The principal's oldest one that is not running makes room for it.

        Raises:
            StanzaError: `resource-constraint`, when there is no room.
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
        session = Session(self._new_id(requester, target), requester, target, node, lang)
        session.used = self._clock()
        self._sessions[session.id] = session
        self._own.setdefault(principal, []).append(session)
        return session

    def _free(self, principal: JID) -> int:
        """How many more there may be if this principal wants one."""
        reserved = 0 if principal in self._admins else self._reserved
        return self._total - len(self._sessions) - reserved

    def find(self, id_: str, requester: JID, target: JID, node: str) -> Session:
        """The session of this requester, at this address, of this command; it counts as used.

        Raises:
            StanzaError: `not-allowed` with <session-expired/> when it has gone, `bad-request` with
                <bad-sessionid/> when there never was such a one (XEP-0050 §4.4).
        """
        self._forget()
        session = self._sessions.get(id_)
        if session is None and self._is_ours(id_, requester, target):
            raise expired()
        if session is None or (session.requester, session.target, session.node) != (
            requester,
            target,
            node,
        ):
            raise refused(BadSessionId(), "There is no such session here.")
        session.used = self._clock()
        self._sessions.move_to_end(id_)
        return session

    def _drop(self, those: list[Session]) -> None:
        """Drop one of those that are not running. Raises StanzaError if all of them are."""
        idle = [each for each in those if each.stage != "running"]
        if not idle:
            raise errors.busy(_RETRY_S)
        # One that has ended is missed less than one that somebody is filling in.
        self._remove(next((each for each in idle if each.stage == "ended"), idle[0]))

    def _remove(self, session: Session) -> None:
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

    def _new_id(self, requester: JID, target: JID) -> str:
        random = secrets.token_hex(_ID_BYTES)
        return random + self._mark(random, requester, target)

    def _is_ours(self, id_: str, requester: JID, target: JID) -> bool:
        random, mark = id_[: 2 * _ID_BYTES], id_[2 * _ID_BYTES :]
        return hmac.compare_digest(
            self._mark(random, requester, target).encode(), mark.encode("utf-8", "replace")
        )

    def _mark(self, random: str, requester: JID, target: JID) -> str:
        text = f"{random}\n{requester}\n{target}".encode("utf-8", "replace")
        return hashlib.blake2b(text, key=self._secret, digest_size=_MARK_BYTES).hexdigest()


def refused(condition: Payload, text: str) -> StanzaError:
    """``bad-request`` with a condition of XEP-0050 §4.4."""
    return StanzaError("bad-request", text, application=(condition,))


def expired() -> StanzaError:
    """The session has ended: ``not-allowed`` with <session-expired/> (XEP-0050 §4.4)."""
    return StanzaError(
        "not-allowed",
        "This session has ended. Begin the command again.",
        application=(SessionExpired(),),
    )
