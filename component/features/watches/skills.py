"""The skills by which a model proposes a watch, lists watches, and publishes an item."""

from collections.abc import Callable
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from component import system
from component.features.watches.service import WatchError, WatchService, Wish
from component.kernel.triggers import work_asked_in
from component.skills.context import Context
from component.skills.declare import own_skill
from component.skills.errors import InvalidParam, SkillError
from component.skills.inputs import Arguments
from component.skills.skill import Skill
from component.skills.spec import OPTIONAL
from component.store.errors import StorageError
from xep.atom import Entry
from xep.binding import RawXML, keep
from xep.jid import JID, JIDError
from xep.json_containers import Json
from xep.stanza_error import StanzaError

_LONGEST_PAYLOAD: Final = 60_000


class Publication(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of the skill that publishes an item.

    Args:
        service: Address of the PubSub service.
        node: Name of the node.
        text: Text of the item.
        json: JSON value of the item, instead of a text.
        item: Id of the item; empty for a new one.
    """

    service: Annotated[str, Meta(max_length=1024)]
    node: Annotated[str, Meta(min_length=1, max_length=1024)]
    text: Annotated[str, Meta(max_length=_LONGEST_PAYLOAD)] = ""
    json: Annotated[str, Meta(max_length=_LONGEST_PAYLOAD)] = ""
    item: Annotated[str, Meta(max_length=200)] = ""


def watch_skills(watches: Callable[[], WatchService]) -> tuple[Skill, ...]:
    """Return the skills about watches. `watches` is called only while one of them runs."""

    @own_skill(
        title="Watch",
        question="May I watch {node}[ of {service}] as {name}[, where {where}]"
        "[, where {json_filter}][, at most {rate}], and each time: {goal}?",
        undo="/watch remove NAME",
        own=_is_of_own_account,
        idempotent=True,
        open_world=True,
        capabilities=("watches:write",),
        tags=("watches", OPTIONAL),
        typical_duration=0.1,
        cost_usd=0.0,
    )
    async def watch_create(wish: Wish, /, context: Context) -> str:
        """Watch for an event and act each time it happens, until the person removes the watch.

        Use it when the person asks to be told, or wants something done, whenever something happens.
        The person is asked to agree first, unless it is about their own account. The watch replaces
        one of the same name that the person has.
        """
        try:
            former = await watches().list(context.principal)
            made = await watches().create(wish, work_asked_in(context))
        except WatchError as error:
            raise SkillError(str(error)) from None
        except StorageError as error:
            raise SkillError("Watches cannot be stored at the moment.") from error
        replaced = "".join(
            f" It replaces the watch for {one.node} of {one.service}: {one.work}"
            for one in former
            if one.name == made.name
        )
        return (
            f"Watching {made.node} of {made.service} as {made.name}.{replaced} The person can list,"
            " pause and remove watches with /watch."
        )

    @own_skill(
        title="List watches",
        question="May I list your watches?",
        read_only=True,
        idempotent=True,
        open_world=False,
        capabilities=("watches:read",),
        tags=("watches", OPTIONAL),
        typical_duration=0.02,
        cost_usd=0.0,
    )
    async def watch_list(context: Context) -> str:
        """List the watches of the person, with what each is about and whether it is active."""
        try:
            found = await watches().list(context.principal)
        except StorageError as error:
            raise SkillError("Watches cannot be read at the moment.") from error
        return msgspec.json.encode(found).decode()

    @own_skill(
        title="Publish",
        question="May I publish[ {text}][ {json}] at {node} of {service}[, as the item {item}]?",
        destructive=True,
        open_world=True,
        capabilities=("pubsub:publish",),
        tags=("pubsub", OPTIONAL),
        typical_duration=0.2,
        cost_usd=0.0,
    )
    async def pubsub_publish(new: Publication, /, context: Context) -> str:
        """Publish an item at a node of a PubSub service, for all who are subscribed to it."""
        try:
            to = JID.parse(new.service).bare
        except JIDError as error:
            raise InvalidParam("service", f"it is not an address: {error}") from None
        if not watches().may_use(JID.parse(context.principal), to):
            raise SkillError(f"Nothing may be published at {to} from here.")
        try:
            payload = _payload(new.text, new.json)
            published = await watches().publish(context, (to, new.node), payload, new.item)
        except StanzaError as error:
            raise SkillError(f"The service refused it: {error.text or error.condition}") from None
        except StorageError as error:
            raise SkillError("This cannot be done at the moment.") from error
        return f"Published {published or 'the item'} at {new.node} of {to}."

    return (watch_create, watch_list, pubsub_publish)


def _is_of_own_account(principal: JID, arguments: Arguments) -> bool:
    assert isinstance(arguments, Wish)
    return arguments.service in ("", str(principal))


def _payload(text: str, json: str) -> RawXML:
    if bool(text) == bool(json):
        raise InvalidParam("text", "give either text or json")
    if text:
        now = system.now()
        return keep(Entry(title=text, published=now, updated=now))
    try:
        value = msgspec.json.encode(msgspec.json.decode(json))
    except msgspec.DecodeError as error:
        raise InvalidParam("json", f"it is not JSON: {error}") from None
    return keep(Json(value=msgspec.Raw(value)))
