"""How thorough a run of the tests is: the environment variable HYPOTHESIS_PROFILE."""

import os
from typing import Final

PROFILE: Final = os.environ.get("HYPOTHESIS_PROFILE", "quick")
"""`quick` for every run, `thorough` for campaigns (`make thorough`)."""
THOROUGH: Final = PROFILE == "thorough"
