"""What peers ask: who asks, what the principal here is shown, and the answer for the peer.

A question names the agent that asks, which can be one further on than the peer (`agent`). That is
the peer's word. It is believed only of agents that are further on: nobody there has an address of
this service, or of an agent in the path of the work.
"""

from collections.abc import Callable
from typing import Final, Literal, TypeAlias

import msgspec

from component.agent_addresses import both_addresses
from component.config.peers import Peer
from component.features.peers.rows import Call
from component.skills.context import Context
from component.skills.errors import Denied, UsageError
from component.skills.foreign_texts import clean_schema, line
from component.skills.operations import answer_schema
from component.store.database import Database
from component.task_messages.sentences import preferred
from component.task_messages.value_rendering import printable_name
from component.tasks import question_rows
from xep.binding import Payload, encode, read
from xep.data_forms import Form
from xep.fluux_agent.confirm import Confirm, Decision, has_digest, parameters_of
from xep.fluux_agent.execute import Execute
from xep.fluux_agent.task import AnswerParams, Input, InputAnswer, InputSchema, Question, Task
from xep.jid import JID

Asked: TypeAlias = Task | Confirm
"""A question: a task with an input, or a confirmation."""

_LONGEST_QUESTION: Final = 1500
_LONGEST_IN_SCHEMA: Final = 1000


IsOwn: TypeAlias = Callable[[JID], bool]
"""Returns whether an address is one of this service."""


def check(call: Call, asked: Asked, is_own: IsOwn) -> None:
    """Check a question of a peer. Raises ValueError, which says what is wrong with it."""
    if isinstance(asked, Task):
        _input_of(asked)
        return
    if asked.hash is None:
        raise ValueError("a confirmation without a digest")
    acting = _asker(call, asked.agent, is_own)
    if asked.agent is not None and acting != asked.agent:
        raise ValueError("a confirmation in the name of an agent that cannot have asked it")
    # On its way up a confirmation gets other identifiers, so only the first digest can be computed.
    if asked.agent is None and not has_digest(acting, asked):
        raise ValueError("a confirmation of which the digest says something else")


async def reply(peer: Peer, call: Call, context: Context, is_own: IsOwn) -> Payload:
    """Ask the principal what the peer asks, and return the answer for it."""
    asked = read(call.question or "", Task, Confirm)
    assert isinstance(asked, Task | Confirm)
    if isinstance(asked, Confirm):
        shown = msgspec.structs.replace(asked, agent=_asker(call, asked.agent, is_own))
        value: Literal["approve", "deny"] = await context.relay(encode(shown), asked.id)
        return Decision(id=asked.id, value=value, hash=asked.hash)
    put = _input_of(asked, context.lang)
    text, asker = put.questions[0].text, _asker(call, put.agent, is_own)
    if context.delegation is None:  # the principal is a person, to whom nobody else says who asks
        text = f"{_named(peer, call, asker)}: {text}"
    put = msgspec.structs.replace(put, agent=asker, questions=(Question(text=text, lang="en"),))
    answer = InputAnswer(task=asked.id, input=put.id, revision=put.revision)
    try:
        given = await context.relay(encode(put), put.id)
    except Denied:
        return msgspec.structs.replace(answer, form=Form(type="cancel"))
    params = AnswerParams(json=msgspec.Raw(msgspec.json.encode(given)))
    return msgspec.structs.replace(answer, params=params)


def approval(database: Database, peer: Peer, call: Call) -> Payload | None:
    """Return the decision about a confirmation that the principal has made here already, for this
    call: the peer itself wants to run the same skill with the same parameters. None if it is
    another question.
    """
    asked = read(call.question or "", Task, Confirm)
    given = question_rows.approved_of(database, call.task)
    if not isinstance(asked, Confirm) or asked.agent is not None or given is None:
        return None
    if given.action.type != f"{peer.name}.{asked.action.type}":
        return None
    try:
        if parameters_of(given.action) != parameters_of(asked.action):
            return None
    except ValueError:
        return None
    return Decision(id=asked.id, value="approve", hash=asked.hash)


def _named(peer: Peer, call: Call, asker: JID) -> str:
    """Return who asks, in the words that begin the question."""
    if str(asker) == call.address:
        return f"{peer.name} ({printable_name(call.address)}) asks"
    return f"{printable_name(str(asker))} asks through {peer.name}"


def _asker(call: Call, claimed: JID | None, is_own: IsOwn) -> JID:
    """Return the agent that asks: the claimed one, or the peer itself if that cannot be true."""
    peer = JID.parse(call.address)
    if claimed is None:
        return peer
    delegation = read(call.request, Execute).delegation
    assert delegation is not None, "each call of a peer has one"
    nearer = {delegation.origin, *delegation.via, *both_addresses(peer)}
    if is_own(claimed) or not nearer.isdisjoint(both_addresses(claimed)):
        return peer
    return claimed.bare


def _input_of(asked: Task, lang: str = "") -> Input:
    """Return the question of a task with clean texts, in a language if it has it. Raises
    ValueError.
    """
    put = asked.input
    question = None if put is None else preferred(put.questions, lang)
    if put is None or question is None:
        raise ValueError("a question without a text")
    try:
        schema = msgspec.json.decode(put.schema.json, type=dict[str, object])
        encoded, _ = answer_schema(clean_schema(schema, _LONGEST_IN_SCHEMA), "person")
    except (ValueError, RecursionError, UsageError) as error:
        raise ValueError(f"a question with a schema that cannot be used: {error}") from error
    # In one line, so that no text of it begins a line of the message.
    text = line(question.text, _LONGEST_QUESTION)
    return msgspec.structs.replace(
        put,
        questions=(Question(text=text, lang="en"),),
        schema=InputSchema(json=msgspec.Raw(encoded)),
        form=None,
    )
