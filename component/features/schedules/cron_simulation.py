"""The instants of a cron expression, by cronsim, with a correction for Lord Howe Island."""

from cronsim import CronSim, CronSimError

__all__ = ["CronSimError", "CronSimulation"]


class CronSimulation(CronSim):
    """cronsim's simulation, correct where a clock is set forward or back by half an hour.

    cronsim 2.8 looks for the next hour in steps of 60 minutes. After such a change it arrives at
    half past, and the first half of that hour is lost.
    """

    def advance_hour(self) -> bool:
        """Go on to the beginning of an hour that fits; False if the present one does."""
        if self.dt.hour in self.hours:
            return False
        self.dt = self.dt.replace(minute=0, second=0)
        while self.dt.hour not in self.hours:
            self.tick(seconds=(60 - self.dt.minute) * 60)
            if self.dt.hour == 0:
                break  # the day and the month have to fit as well
        return True
