"""The description of a watch for people and programs."""

import msgspec


class WatchSheet(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The description of a watch.

    Attributes:
        id: what identifies it among those of everybody.
        name: its name among those of its owner.
        owner: the bare JID of the person who asked for it; empty if it is in the settings.
        agent: the agent that does the work.
        service: the address whose events it observes.
        node: the node there.
        filter: the conditions on items, in words; may be empty.
        work: what each event starts, in words.
        rate: the maximum number of starts in a time, and the policy for other events.
        state: `active`, `paused`, or `tripped` by the breaker against loops.
        subscription: the state of the subscription; empty while the service is not running.
        reason: why it is not active or not subscribed.
        received: events that met the conditions.
        started: how many of them started work.
        thinned: how many were joined, replaced or dropped because of the rate.
        refused: how many could not start work, for example because a right was lost.
        cut: how many were ignored, because too many agents' work had led to them.
        pending: starts that wait.
    """

    id: str
    name: str
    owner: str = ""
    agent: str
    service: str
    node: str
    filter: str = ""
    work: str
    rate: str
    state: str
    subscription: str = ""
    reason: str = ""
    received: int = 0
    started: int = 0
    thinned: int = 0
    refused: int = 0
    cut: int = 0
    pending: int = 0
