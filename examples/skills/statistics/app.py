"""A skill in Python, as a component: the mean, median and standard deviation of numbers."""

import json
import statistics

import wit_world
from wit_world import Outcome_InvalidParameter, Outcome_Json
from wit_world.imports import log


class WitWorld(wit_world.WitWorld):
    """Implements the world."""

    def execute(self, arguments: str) -> wit_world.Outcome:
        """Execute the skill."""
        numbers = json.loads(arguments)["numbers"]
        if len(numbers) < 2:
            return Outcome_InvalidParameter(("numbers", "at least two are needed"))
        log.write(log.Level.DEBUG, f"{len(numbers)} numbers")
        return Outcome_Json(
            json.dumps(
                {
                    "mean": statistics.fmean(numbers),
                    "median": statistics.median(numbers),
                    "deviation": statistics.stdev(numbers),
                }
            )
        )
