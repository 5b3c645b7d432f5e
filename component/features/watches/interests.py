"""Selects the watches that an event is for, and the parts of it that their work gets."""

from collections.abc import Mapping
from hashlib import sha256

import msgspec
import structlog

from component.features.watches.conditions import Filter, json_text, text_of
from component.features.watches.events import Offered
from component.features.watches.provenance import chain_of
from component.features.watches.watch import EventData, Observed, Source, Watch
from xep.binding import ContentError, RawXML
from xep.tree import Tree, tree_and_digest

_log = structlog.get_logger("component.watches")

_LONGEST_TEXT = 8_000
"""Maximum number of characters of a payload that work gets; more would fill a model's prompt."""


class Interests:
    """The watches of one source, with their filters.

    Args:
        source: the source.
        watches: its watches, by id. Their filters were checked when they were defined.

    Raises:
        FilterError: a filter is invalid.
    """

    def __init__(self, source: Source, watches: Mapping[str, Watch]) -> None:
        self._source = source
        self.watches = dict(watches)
        self._filters = {id_: Filter(one.where, one.json) for id_, one in watches.items()}

    def offer(self, observed: Observed) -> Offered:
        """Return an event with the ids of the watches whose filters accept it. Never raises."""
        payload = observed.tree
        interested = tuple(id_ for id_, one in self._filters.items() if one.accepts(payload))
        if not interested:
            return Offered(observed, (), b"")
        chain = chain_of(payload)
        if chain:
            observed = msgspec.structs.replace(observed, chain=chain, hops=len(chain))
        data = EventData(
            service=str(self._source.service),
            node=self._source.node,
            item=observed.item,
            publisher=observed.publisher,
            text=text_of(payload)[:_LONGEST_TEXT],
            payload=observed.payload[:_LONGEST_TEXT],
            json=_json(payload) if observed.json is None else observed.json,
        )
        return Offered(observed, interested, msgspec.json.encode(data))


def observed_item(item_id: str | None, payload: str, publisher: str | None) -> Observed:
    """Return an item as an event."""
    tree, version = None, sha256(payload.encode()).hexdigest()[:32]
    if payload:
        try:
            tree, version = tree_and_digest(RawXML(payload))
        except ContentError as error:
            _log.debug("a payload is not XML", item=item_id, reason=str(error))
    return Observed(
        item=item_id or "",
        version=version,
        payload=payload,
        tree=tree,
        publisher=publisher or "",
    )


def _json(payload: Tree | None) -> msgspec.Raw:
    text = json_text(payload)
    if text is None or len(text) > _LONGEST_TEXT:
        return msgspec.Raw(b"null")
    try:
        return msgspec.Raw(msgspec.json.encode(msgspec.json.decode(text)))
    except (msgspec.DecodeError, RecursionError):
        return msgspec.Raw(b"null")
