"""Generated requests of every kind that is served: each is answered once, none breaks a handler."""

from typing import Any
from xml.etree import ElementTree as ET

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.link.router.table import IQRoute
from tests.component.link.router.wire import AGENT, DOMAIN, Bench, addresses, error_of, iq
from tests.component.world import ALICE, BOB, NODE, World, all_skills
from tests.profiles import examples
from tests.xep.strategies import elements, json_values, payloads, xml_text
from xep import disco
from xep.binding import encode
from xep.fluux_agent import skills as fluux
from xep.fluux_agent.execute import Execute, Param, Params
from xep.fluux_agent.skills import SkillsQuery

pytestmark = pytest.mark.anyio

NAMES = [skill.name for skill in all_skills()]
PARAMS = sorted({param.name for skill in all_skills() for param in skill.inputs.params})
ROUTES = [route for route in World().bench.router.table.routes if isinstance(route, IQRoute)]

_values = xml_text | st.sampled_from(["1", "-1", "0.001", "1e999", "true", "red", "Europe/Paris"])
_executions = st.builds(
    Execute,
    skill=st.sampled_from(NAMES),
    params=st.lists(st.builds(Param, name=st.sampled_from(PARAMS), text=_values), max_size=4).map(
        tuple
    ),
    mode=st.sampled_from(["auto", "inline", "async"]),
    request=st.none() | st.sampled_from(["r1", "r2", "no identifier"]),
    json_params=st.none()
    | st.dictionaries(st.sampled_from(PARAMS) | xml_text, json_values, max_size=3).map(
        lambda values: Params(json=msgspec.Raw(msgspec.json.encode(values)))
    ),
).map(encode)
_nodes = st.sampled_from(
    [fluux.NAMESPACE, f"{fluux.NAMESPACE}/echo", NODE, f"{NODE}#x", *(NAMES[:2])]
)
_discoveries = st.one_of(
    st.builds(disco.InfoQuery, node=_nodes),
    st.builds(disco.ItemsQuery, node=_nodes, page=payloads(disco.ItemsQuery).map(lambda q: q.page)),
    st.builds(SkillsQuery, skill=st.sampled_from(NAMES)),
).map(encode)


def _anything(route: IQRoute) -> st.SearchStrategy[str]:
    """What fits the declaration of the payload, and what nearly does."""
    return payloads(route.payload).map(encode) | elements(route.payload).map(
        lambda element: ET.tostring(element, encoding="unicode")
    )


_requests = st.tuples(
    st.one_of(_executions, _discoveries, *(_anything(route) for route in ROUTES)),
    st.sampled_from(["get", "set"]),
    st.sampled_from([ALICE, BOB, DOMAIN, "x@refused.example"]),
    st.sampled_from([AGENT, DOMAIN]),
)


@examples(10)
@given(requests=st.lists(_requests, min_size=1, max_size=12))
async def test_every_request_is_answered_once_and_none_breaks_a_handler(
    requests: list[tuple[str, str, str, str]],
) -> None:
    world = World(all_skills(), inline_s=0.001)
    async with world.running():
        world.bench.receive(
            *(
                iq(content, type_=type_, id_=str(n), from_=from_, to=to)
                for n, (content, type_, from_, to) in enumerate(requests)
            )
        )
        await world.bench.settled()
    _check(world.bench, requests)
    assert world.sent == []


def _check(bench: Bench, requests: list[Any]) -> None:
    replies = {addresses(reply): reply for reply in bench.replies}
    assert len(replies) == len(bench.replies)
    assert set(replies) == {(str(n), from_, to) for n, (_, _, from_, to) in enumerate(requests)}
    for reply in replies.values():
        if reply.get("type") == "error":
            assert error_of(reply).condition != "internal-server-error", ET.tostring(reply)
