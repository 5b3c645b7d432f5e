"""The one road by which skills are run, whoever asks and by which face."""

from component.execution.recent import Recent
from component.execution.road import Confirming, Road

__all__ = ["Confirming", "Recent", "Road"]
