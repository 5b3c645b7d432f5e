"""Inputs that are made when they are first used: most of a thousand skills are never called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from component.skills.inputs import Arguments, Inputs, params_of
from component.skills.readers import Reader
from component.skills.schema_inputs import schema_inputs
from component.skills.spec import Schema


def later_inputs(schema: Schema) -> Inputs:
    """Return the inputs of a JSON Schema that was checked when its skill was approved."""
    later = _Later(schema)
    return Inputs(
        type=dict[str, Any],
        params=params_of(schema),
        readers=later,
        verbatim=frozenset(),  # nobody asks where `complete` is
        complete=later.complete,
    )


class _Later(Mapping[str, Reader]):
    """The readers and the validator of a schema."""

    __slots__ = ("_made", "_schema")

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._made: Inputs | None = None

    def _inputs(self) -> Inputs:
        if self._made is None:
            self._made = schema_inputs(self._schema)
        return self._made

    def complete(self, values: dict[str, Any]) -> Arguments:
        """See `Inputs`."""
        found = self._inputs().complete
        assert found is not None, "inputs of a schema complete their values"
        return found(values)

    def __getitem__(self, name: str) -> Reader:
        return self._inputs().readers[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._inputs().readers)

    def __len__(self) -> int:
        return len(self._inputs().readers)
