"""How thorough a run of the tests is, and where its chance comes from.

The gate (`make test`) makes the same choices in every run. A thorough run (`make thorough`) draws a
new seed, which its first lines show; TEST_SEED repeats it.
"""

import os
from typing import Final

from hypothesis import settings

THOROUGH: Final = bool(os.environ.get("THOROUGH"))
"""Whether this is a run of the campaigns."""
SEED: Final = int(os.environ.get("TEST_SEED", "1"))
"""The seed of everything that is drawn."""


def examples(gate: int, thorough: int = 2000) -> settings:
    """Settings of a property: how many examples the gate tries, and a thorough run."""
    return settings(max_examples=thorough if THOROUGH else gate)
