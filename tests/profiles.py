"""How thorough a run of the tests is, and where its chance comes from.

The gate (`make test`) makes the same choices in every run. A thorough run (`make thorough`) draws a new
seed, which its first lines show; TEST_SEED repeats it.
"""

import os
from typing import Final

THOROUGH: Final = bool(os.environ.get("THOROUGH"))
"""Whether this is a run of the campaigns."""
SEED: Final = int(os.environ.get("TEST_SEED", "1"))
"""The seed of everything that is drawn."""
