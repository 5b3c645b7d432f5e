"""What any entity is asked."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.features.discovery.handlers import CommonQueries
from tests.component.link.router.wire import AGENT, DOMAIN, Bench, iq
from tests.component.world import World, result
from xep.binding import encode
from xep.entity_time import Time, TimeQuery
from xep.ping import Ping
from xep.version import Version, VersionQuery

hosts = pytest.mark.parametrize("to", [DOMAIN, AGENT])


@hosts
def test_a_ping_is_answered_with_an_empty_result(to: str) -> None:
    reply = World().ask(Ping(), to=to)
    assert reply.get("type") == "result"
    assert len(reply) == 0


@hosts
def test_the_version_names_the_software_and_not_the_system(to: str) -> None:
    assert result(Version, World().ask(VersionQuery(), to=to)) == Version(
        name="agent", version="1.2.3"
    )


@given(second=st.integers(0, 2**33), minutes=st.integers(-14 * 60, 14 * 60))
def test_the_time_is_told_with_its_zone(second: int, minutes: int) -> None:
    zone = timezone(timedelta(minutes=minutes))
    here = datetime.fromtimestamp(second, zone)
    answer = result(Time, World(now=lambda: here).ask(TimeQuery()))
    assert answer.utc == here
    assert answer.utc.utcoffset() == timedelta()
    assert answer.tzo.utcoffset(None) == timedelta(minutes=minutes)


def test_without_another_clock_it_is_the_time_of_this_machine() -> None:
    bench = Bench(CommonQueries("agent", "1").routes())
    before = datetime.now(UTC)
    told = result(Time, bench.answer(iq(encode(TimeQuery()))))
    assert before <= told.utc <= datetime.now(UTC)
    assert told.tzo.utcoffset(None) == datetime.now().astimezone().utcoffset()
