"""Children for tests that are not about what the kernel guarantees."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="package")
def no_confinement_report() -> Iterator[None]:
    """Do not try out, whenever children are started, what confined processes can do.

    It takes more than most calls in them. `test_end_with_service.py` shows that it is tried out,
    and `test_launch.py` what is found.
    """

    async def nothing() -> None: ...

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("component.sandbox.process_skills.log_confinement", nothing)
        yield
