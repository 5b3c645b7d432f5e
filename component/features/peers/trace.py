"""What became of delegated work: the tasks here, the calls of peers, and what their receipts say.

What was answered at once has no row; the audit log has a line about it. Functions take the
`Database` of one operation, and only read.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Final

import msgspec

from component.agent_addresses import canonical_address
from component.audit.lines import Line
from component.features.peers import rows
from component.features.peers.rows import Call
from component.grants.receipt import ReceiptError, Spent, read_receipt
from component.store.database import Database
from component.tasks.rows import Row, load, request_of, select
from xep.binding import read
from xep.fluux_agent.execute import Execute, Result
from xep.jid import JID

_MOST: Final = 1000
"""The maximum number of tasks that are searched, and of parts of a task."""
_DEEPEST: Final = 16
_TRACE: Final = re.compile(r"[0-9a-f]{32}")


class Work(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Work of one agent, and what others have done for it.

    `agent` did it for `person`, and `state` is how it ended or stands. `said_by` is the agent whose
    receipt says so; empty for what this service knows itself.
    """

    agent: str
    skill: str
    state: str
    person: str
    task: str = ""
    trace: str = ""
    usage: Spent = Spent()
    said_by: str = ""
    parts: tuple["Work", ...] = ()


def find_work(database: Database, wanted: str) -> Sequence[Work]:
    """Return the work with an id: that of a task, or a trace identifier."""
    where, values = "id = ?", [wanted]
    if _TRACE.fullmatch(wanted):
        where += " OR request LIKE ? OR id IN (SELECT task FROM peer_calls WHERE request LIKE ?)"
        values += [f"%-{wanted}-%"] * 2
    found: dict[str, Row] = {}
    for row in select(database, f"WHERE {where} ORDER BY created, id LIMIT {_MOST}", values):
        top = _top(database, row)
        found.setdefault(top.id, top)
    return [_of_task(database, row) for row in found.values()]


def _top(database: Database, row: Row) -> Row:
    """Return the task that has started a task, directly or not; itself if none has."""
    for _ in range(_DEEPEST):
        above = None if row.parent is None else load(database, row.parent, lock=False)
        if above is None:
            break
        row = above
    return row


def _of_task(database: Database, row: Row, depth: int = 0) -> Work:
    request = request_of(row)
    delegation = request.delegation
    parts = [_of_call(each) for each in rows.calls_of(database, row.id)]
    if depth < _DEEPEST:
        children = select(
            database, f"WHERE parent = ? ORDER BY created, id LIMIT {_MOST}", (row.id,)
        )
        parts += [_of_task(database, each, depth + 1) for each in children]
    return Work(
        agent=str(canonical_address(JID.parse(row.target))),
        skill=row.skill,
        state=row.state,
        person=row.principal if delegation is None else str(delegation.origin),
        task=row.id,
        trace="" if delegation is None else delegation.trace_id,
        usage=Spent() if row.result is None else rows.spent_in(read(row.result, Result), None),
        parts=tuple(parts),
    )


def _of_call(call: Call) -> Work:
    if call.receipt is not None:
        return _of_receipt(call.receipt, call.peer)
    request, outcome = read(call.request, Execute), call.result()
    state = "completed" if isinstance(outcome, Result) else call.state
    return Work(
        agent=call.address,
        skill=request.skill,
        state="unknown" if call.unknown else "failed" if state == "ended" else state,
        person="" if request.delegation is None else str(request.delegation.origin),
        task=call.remote or "",
        trace="" if request.delegation is None else request.delegation.trace_id,
        usage=Spent() if outcome is None else rows.spent_in(outcome, None),
    )


def _of_receipt(compact: str, said_by: str, depth: int = 0) -> Work:
    """Return what a receipt says. Raises ReceiptError."""
    receipt = read_receipt(compact)
    parts = []
    for each in receipt.receipts if depth < _DEEPEST else ():
        try:
            parts.append(_of_receipt(each, receipt.iss, depth + 1))
        except ReceiptError:
            continue  # only its issuer has verified it
    return Work(
        agent=receipt.iss,
        skill=receipt.skill,
        state=receipt.state,
        person=receipt.sub,
        task=receipt.task or "",
        trace=receipt.trace or "",
        usage=receipt.usage,
        said_by=said_by if depth else receipt.iss,
        parts=tuple(parts),
    )


_FOR: Final = re.compile(r"for (\S+)(?:$|:)")
_BY_PEER: Final = re.compile(r"(\S+) has (not )?completed it")


def answered_at_once(
    lines: Iterable[Line], known: Sequence[Work], address_of: Callable[[str], str]
) -> Sequence[Work]:
    """Return the work that lines of the audit log tell of, and that has no row.

    `known` is what was found in the rows. `address_of` returns the address of an agent of this
    service.
    """
    tasks = {each.task for work in known for each in _all_of(work)}
    found = []
    for line in lines:
        by_peer, person = _BY_PEER.match(line.detail), _FOR.match(line.detail)
        if line.kind != "execute" or line.task in tasks:
            continue
        if by_peer is not None:
            agent, origin = by_peer[1], line.principal
            state = "failed" if by_peer[2] else "completed"
        elif person is not None and line.outcome in ("done", "failed"):
            agent, origin = address_of(line.agent), person[1]
            state = "completed" if line.outcome == "done" else "failed"
        else:
            continue
        found.append(
            Work(agent=agent, skill=line.subject, state=state, person=origin, trace=line.trace)
        )
    return found


def _all_of(work: Work) -> Iterator[Work]:
    yield work
    for part in work.parts:
        yield from _all_of(part)


def tree(work: Work) -> list[str]:
    """Return the lines that draw work and its parts."""
    lines = [_line(work)]
    for number, part in enumerate(work.parts, start=1):
        is_last = number == len(work.parts)
        first, *rest = tree(part)
        lines.append(f"{'└─' if is_last else '├─'} {first}")
        lines += [f"{'  ' if is_last else '│ '} {each}" for each in rest]
    return lines


def _line(work: Work) -> str:
    usage, words = work.usage, [work.state]
    if usage.duration_ms is not None:
        words.append(f"{usage.duration_ms / 1000:g} s")
    tokens = [each for each in (usage.tokens_in, usage.tokens_out) if each]
    if tokens:
        words.append(f"{sum(tokens)} tokens")
    if usage.cost_usd:
        words.append(f"{Decimal(usage.cost_usd):f} USD")
    if work.said_by == work.agent:
        words.append("with its receipt")
    elif work.said_by:
        words.append(f"as {work.said_by} says")
    task = f" (task {work.task})" if work.task else ""
    return f"{work.agent} {work.skill} for {work.person}: {', '.join(words)}{task}"
