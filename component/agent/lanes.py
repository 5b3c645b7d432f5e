"""Whose turn it is: one message at a time in a session, many sessions at once, all in order.

Nothing here waits. A session has a lane while it has something to do, and none otherwise.
"""

from collections import Counter, deque
from collections.abc import Callable

import msgspec

from component.agent.protocol import Incoming
from component.agent.turns import Wait
from component.memory.lines import SessionKey
from component.policy.taint import Taint
from xep.jid import JID


class Turn(msgspec.Struct, eq=False):
    """A message that waits for its turn, or is at it.

    `stored` says that its row is on disk, `labelled` that it is known who wrote what it answers;
    before that it keeps its place and does not begin. `resumed` says that it may have lines in the
    session's file. `joined` are messages that are answered by the same answer. `wait` is what its
    row waited for, `due` says that an answer that was held back is to be said now. `tries` counts
    failures of the disk.
    """

    incoming: Incoming
    stored: bool = False
    resumed: bool = False
    joined: list[Incoming] = msgspec.field(default_factory=list)
    wait: Wait | None = None
    due: bool = False
    tries: int = 0

    @property
    def messages(self) -> list[Incoming]:
        """All that it answers, the first one first."""
        return [self.incoming, *self.joined]

    @property
    def ready(self) -> bool:
        """Whether it may begin, as far as it is concerned."""
        return self.stored and self.labelled

    @property
    def ids(self) -> tuple[str, ...]:
        """The rows that are answered with it."""
        return (self.incoming.id, *(one.id for one in self.joined))

    @property
    def unlabelled(self) -> list[Incoming]:
        """Those of its messages of which nobody knows yet who wrote them."""
        return [one for one in self.messages if one.taint is None]

    @property
    def labelled(self) -> bool:
        """Whether there are none such."""
        return self.incoming.taint is not None and not (self.joined and self.unlabelled)

    def label(self, requester: JID, taint: Taint) -> None:
        """Label the messages of one sender that have no label."""

        def said(one: Incoming) -> Incoming:
            mine = one.taint is None and one.requester == requester
            return msgspec.structs.replace(one, taint=taint) if mine else one

        self.incoming = said(self.incoming)
        self.joined = [said(one) for one in self.joined]


class Lane:
    """A session that has something to do.

    Attributes:
        key: whose it is.
        waiting: what waits, the next one first.
        running: what is at it.
        ready: whether it stands in the row of those that may begin.
        held: by how many it is held up.
    """

    __slots__ = ("held", "key", "ready", "running", "waiting")

    def __init__(self, key: SessionKey) -> None:
        self.key = key
        self.waiting: deque[Turn] = deque()
        self.running: Turn | None = None
        self.ready = False
        self.held = 0

    @property
    def may_begin(self) -> bool:
        """Whether its next message can have its turn."""
        free = self.running is None and not self.held
        return free and bool(self.waiting) and self.waiting[0].ready


class Lanes:
    """The lanes. Of the principals that have something ready, the next one is whoever has waited
    longest, however much the others have brought.

    Args:
        changed: is called with a lane whose next message can begin, or join the turn under way.
            Every change of a lane ends with that, so no caller has to know what it has set free.

    Attributes:
        running: how many turns are under way.
    """

    def __init__(self, changed: Callable[[Lane], None] = lambda _lane: None) -> None:
        self.running = 0
        self._changed = changed
        self._lanes: dict[SessionKey, Lane] = {}
        self._ready: dict[JID, deque[Lane]] = {}
        self._ring: deque[JID] = deque()
        self._waiting: Counter[JID] = Counter()

    def all(self) -> list[Lane]:
        """All lanes there are."""
        return list(self._lanes.values())

    def of(self, key: SessionKey) -> Lane | None:
        """The lane of a session, if it has anything to do."""
        return self._lanes.get(key)

    def waiting(self, principal: JID) -> int:
        """How many messages of a principal wait."""
        return self._waiting[principal]

    def add(self, key: SessionKey, turn: Turn, *, first: bool = False) -> Lane:
        """Let a message wait for its turn, behind all others of its session or before them."""
        lane = self._lane(key)
        if first:
            lane.waiting.appendleft(turn)
        else:
            lane.waiting.append(turn)
        self._waiting[key.who] += 1
        self.look(lane)
        return lane

    def hold(self, key: SessionKey) -> Lane:
        """Let nothing of a session begin until `release`."""
        lane = self._lane(key)
        lane.held += 1
        return lane

    def release(self, lane: Lane) -> None:
        """It may go on."""
        lane.held -= 1
        self.look(lane)
        self._drop(lane)

    def remove(self, lane: Lane, turn: Turn) -> bool:
        """It does not wait any more; False if it did not."""
        try:
            lane.waiting.remove(turn)
        except ValueError:
            return False
        self._less(lane.key.who)
        self.look(lane)
        self._drop(lane)
        return True

    def look(self, lane: Lane) -> None:
        """See whether its next message can begin now, or join what is under way."""
        if not lane.waiting or not lane.waiting[0].ready:
            return
        if lane.running is None:
            if lane.ready or lane.held:
                return
            lane.ready = True
            principal = lane.key.who
            ready = self._ready.get(principal)
            if ready is None:
                ready = self._ready[principal] = deque()
                self._ring.append(principal)
            ready.append(lane)
        self._changed(lane)

    def begin(self) -> Lane | None:
        """Begin the turn that is next, if there is one: it is then the lane's `running`."""
        while self._ring:
            principal = self._ring.popleft()
            ready = self._ready[principal]
            lane = ready.popleft()
            if ready:
                self._ring.append(principal)
            else:
                del self._ready[principal]
            lane.ready = False
            if lane.may_begin:
                lane.running = lane.waiting.popleft()
                self._less(principal)
                self.running += 1
                return lane
        return None

    def end(self, lane: Lane) -> None:
        """Its turn is over."""
        lane.running = None
        self.running -= 1
        self.look(lane)
        self._drop(lane)

    def _lane(self, key: SessionKey) -> Lane:
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = Lane(key)
        return lane

    def _less(self, principal: JID) -> None:
        self._waiting[principal] -= 1
        if not self._waiting[principal]:
            del self._waiting[principal]

    def _drop(self, lane: Lane) -> None:
        idle = lane.running is None and not lane.waiting and not lane.held
        if idle and self._lanes.get(lane.key) is lane:
            del self._lanes[lane.key]
