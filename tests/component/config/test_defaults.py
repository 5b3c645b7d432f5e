"""The defaults of sections, which are not validated when the service starts."""

from collections.abc import Iterator

import pytest
from pydantic import BaseModel

from component.app.features import settings_model
from component.config.kinds import EMPTY, Section, defaults
from component.config.problems import section_of


def sections(section: type[BaseModel]) -> Iterator[type[Section]]:
    """The sections below a section, all of whose keys have defaults."""
    for field in section.model_fields.values():
        below = section_of(field)
        if below is None:
            continue
        if field.default is EMPTY and field.annotation is below:
            assert issubclass(below, Section)
            yield below
        yield from sections(below) if below is not section else ()


@pytest.mark.parametrize("section", dict.fromkeys(sections(settings_model())))
def test_a_section_has_the_same_defaults_as_an_empty_one_in_a_file(section: type[Section]) -> None:
    assert defaults(section) == section.model_validate({})
