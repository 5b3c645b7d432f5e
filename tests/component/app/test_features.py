"""A feature is a folder and a line in the list: everything else is computed from it."""

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any

import anyio
import pytest

import component.features
from component.app import features
from component.app.checks import check_all
from component.app.features import load_skills
from component.app.schema import make_schema
from component.cli.reference import page
from component.config import Server
from component.store.forgetting import Forgotten
from component.store.schema import make_sqlite
from xep.jid import JID

FILES = {
    "__init__.py": '"""Notes: what people want to be reminded of."""\n',
    "settings.py": """
from component.config.kinds import Count, Section
from component.config.sections import table
from pydantic import Field

class NoteLimits(Section):
    '''Notes of people.'''
    per_person: Count = Field(default=7, description="Maximum number of notes of one person.")

LIMITS = table("notes", NoteLimits)
SECTIONS = (LIMITS,)
""",
    "rows.py": """
from component.store.schema import Table

TABLES = (Table(name="notes", columns="person TEXT NOT NULL, text TEXT", has_rowid=True),)

def forget(database, who):
    database.execute("DELETE FROM notes WHERE person = ?", (str(who.person),))
""",
    "feature.py": """
from component.features.feature import Feature, Opened
from component.features.notes import rows
from component.features.notes.settings import LIMITS
from component.kernel.check import Check
from component.metrics.counters import Gauge
from component.skills import skill

@skill
def note_count() -> int:
    '''Count the notes.'''
    return 0

class NoteFeature(Feature):
    def skills(self):
        return (note_count,)

    def open(self, kernel):
        return Opened(forget=rows.forget, gauges=lambda: [Gauge("notes", "Notes.", {(): 3.0}, ())])

    async def checks(self, registry):
        return (Check("notes", "ok", f"at most {self.settings[LIMITS].per_person} of each person"),)

FEATURE = NoteFeature
""",
}


@pytest.fixture
def _notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A feature of its own, beside those of the service."""
    folder = tmp_path / "features" / "notes"
    folder.mkdir(parents=True)
    for name, text in FILES.items():
        (folder / name).write_text(text)
    monkeypatch.setattr(
        component.features, "__path__", [*component.features.__path__, str(folder.parent)]
    )
    monkeypatch.setattr(features, "FEATURES", (*features.FEATURES, "notes"))
    features._model_of.cache_clear()
    yield
    features._model_of.cache_clear()
    features._settings_of.cache_clear()
    for name in [name for name in sys.modules if name.startswith("component.features.notes")]:
        del sys.modules[name]


def given(tmp_path: Path, **sections: Any) -> Any:
    server = Server(component_domain="agent.example", component_secret="s")  # type: ignore[arg-type]
    return features.make_settings(
        server=server, storage={"path": str(tmp_path / "data")}, **sections
    )


@pytest.mark.usefixtures("_notes")
def test_a_feature_has_its_section_skills_and_reference(tmp_path: Path) -> None:
    found = given(tmp_path, notes={"per_person": 3})
    assert found.notes.per_person == 3
    assert load_skills(found).get("note_count") is not None
    assert "## `[notes]`" in page()
    assert "Maximum number of notes of one person." in page()


@pytest.mark.usefixtures("_notes")
def test_a_feature_has_a_table_whose_rows_are_forgotten_and_metrics(tmp_path: Path) -> None:
    kernel: Any = None
    opened = features.make_features(given(tmp_path))["notes"].open(kernel)
    assert [gauge.name for gauge in opened.gauges()] == ["notes"]
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        make_sqlite(connection, Path("agent.db"), make_schema())
        connection.execute("INSERT INTO notes VALUES ('a@b', 'x'), ('c@b', 'y')")
        who = Forgotten(agent="assistant", address=JID.parse("x@y"), person=JID.parse("a@b"))
        assert opened.forget is not None
        opened.forget(connection, who)  # type: ignore[arg-type]
        assert connection.execute("SELECT person FROM notes").fetchall() == [("c@b",)]


@pytest.mark.usefixtures("_notes")
def test_doctor_runs_the_checks_of_a_feature(tmp_path: Path) -> None:
    async def texts() -> list[str]:
        return [check.text async for check in check_all(given(tmp_path)) if check.name == "notes"]

    assert anyio.run(texts, backend="trio") == ["at most 7 of each person"]


SHARED_SECTIONS = {"xmpp_send", "peer", "llm"}
"""Other parts read them too, so they are in component/config."""


@pytest.mark.parametrize("name", features.FEATURES)
def test_the_sections_that_turn_a_feature_on_are_its_own(name: str) -> None:
    package = import_module(f"component.features.{name}")
    if not hasattr(package, "TURNED_ON_BY"):
        return
    turned_on_by = {*package.TURNED_ON_BY} - SHARED_SECTIONS
    if turned_on_by:
        own = import_module(f"{package.__name__}.settings").SECTIONS
        assert {section.name for section in own} == turned_on_by
