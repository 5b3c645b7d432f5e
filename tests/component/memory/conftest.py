import os
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def _these_files_need_not_survive_the_machine() -> Iterator[None]:
    """Thousands of small files are written, and a busy disk takes milliseconds for each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _descriptor: None)
        patch.setattr(os, "fdatasync", lambda _descriptor: None)
        yield
