"""The parts of a life, a file for each: what happens, who does it, and what must hold.

A new part is a file with a class derived from `Area`, and a name in `AREAS`.
"""

from collections.abc import Sequence
from typing import Final

from tests.simulation.area import Area
from tests.simulation.areas.blocks import Blocks
from tests.simulation.areas.budgets import Budgets
from tests.simulation.areas.chat import Chat
from tests.simulation.areas.events import Events
from tests.simulation.areas.faults import Faults
from tests.simulation.areas.memories import Remembering
from tests.simulation.areas.objects import Objects
from tests.simulation.areas.peers import Peers
from tests.simulation.areas.plans import Plans
from tests.simulation.areas.revisions import Revisions
from tests.simulation.areas.rooms import Rooms
from tests.simulation.areas.schedules import Schedules
from tests.simulation.areas.standing import StandingApprovals
from tests.simulation.areas.votes import Votes
from tests.simulation.areas.webhooks import Webhooks
from tests.simulation.areas.work import Work

AREAS: Final[Sequence[type[Area]]] = (
    *(
        Chat,
        Revisions,
        Blocks,
        Remembering,
        Work,
        Schedules,
        Plans,
        Budgets,
        StandingApprovals,
        Rooms,
        Votes,
    ),
    *(Events, Webhooks, Objects, Peers, Faults),
)
