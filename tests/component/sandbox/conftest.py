"""Fixtures of the tests of the sandbox."""

from pathlib import Path

import pytest

from component.sandbox.wasm import WasmRuntime
from tests.component.sandbox.running import runtime, trusted
from tests.component.sandbox.unreported import no_confinement_report

__all__ = ["compiled", "no_confinement_report", "wasm"]


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of compiled code, so that each guest is compiled once in a run."""
    return tmp_path_factory.mktemp("wasm") / "compiled"


@pytest.fixture
def wasm(compiled: Path) -> WasmRuntime:
    return runtime(compiled, probe=trusted)
