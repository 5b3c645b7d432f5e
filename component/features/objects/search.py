"""A query, and the page of objects that it finds among those in memory."""

from collections.abc import Sequence
from typing import Final

import msgspec

from component.features.objects.filters import filter_of, path_of
from component.features.objects.pages import order_of, page_of, selected
from component.features.objects.params import ObjectQuery
from component.features.objects.snapshots import Snapshot
from component.features.objects.stored import ObjectSheet, StoredObject, sheet_of
from component.memory.words import wanted as words_to_find

_PAGE_BYTES: Final = 100_000

_encode = msgspec.json.Encoder().encode


class Search:
    """A query that is ready to run. Raises ObjectError: it cannot be used."""

    def __init__(self, query: ObjectQuery) -> None:
        self._query = query
        self._fits = filter_of(query.filter) if query.filter else None
        self._order = order_of(query.order)
        self._paths = [path_of(each, "select") for each in query.select]
        self._tags = frozenset(query.tags)
        # Each stands at the beginning of a word.
        self._words = [f" {word}" for word in words_to_find(query.text, common=True)]

    def run(self, snapshots: Sequence[Snapshot]) -> tuple[list[StoredObject], int, str]:
        """Return the objects of the page, the number of all, and the cursor."""
        found = [one for each in snapshots for one in self._found_in(each)]
        left = [self._query.limit, _PAGE_BYTES]

        def fits(one: StoredObject) -> bool:
            left[1] -= len(_encode(self.shown(one)))
            is_first = left[0] == self._query.limit
            left[0] -= 1
            return left[0] >= 0 and (is_first or left[1] >= 0)

        chosen, cursor = page_of(found, self._order, self._query.cursor, fits)
        return chosen, len(found), cursor

    def _found_in(self, snapshot: Snapshot) -> list[StoredObject]:
        found = list(snapshot.objects.values())
        if self._tags:
            found = [one for one in found if self._tags.issubset(one.content.tags)]
        if self._fits is not None:
            fits = self._fits
            found = [one for one in found if fits(one.content.data)]
        for word in self._words:
            found = [one for one in found if word in snapshot.words_of(one)]
        return found

    def shown(self, one: StoredObject) -> ObjectSheet:
        """Return an object with the selected members."""
        sheet = sheet_of(one)
        if not self._paths:
            return sheet
        return msgspec.structs.replace(sheet, data=selected(sheet.data, self._paths))
