"""A door says of a request what its parts said one by one, however often it is asked."""

from hypothesis import given
from hypothesis import strategies as st

from component.link.router.addresses import ComponentAddresses
from component.link.router.route_resolver import RouteResolver, Senders
from component.link.router.table import Table
from tests.component.link.router.wire import Do, Wire, do, request
from xep.jid import JID
from xep.stanza import Incoming


def _resolver() -> RouteResolver:
    ours = ComponentAddresses(JID.parse("agent.example.org"), frozenset(("assistant",)))
    senders = Senders(lambda principal: principal.domain != "refused.example", ours)
    return RouteResolver(senders, Table([do(lambda _: None)]))


def _stanza(**head: str) -> Incoming:
    (event,) = Wire().events(request(**head))
    return event.stanza  # type: ignore[union-attr]  # a request is never skipped


@given(
    heads=st.lists(
        st.fixed_dictionaries(
            {
                "from_": st.sampled_from(["a@x.example/1", "b@refused.example", "@", "x" * 600]),
                "to": st.sampled_from(
                    ["agent.example.org", "assistant@agent.example.org", "other@agent.example.org"]
                ),
            }
        ),
        min_size=1,
        max_size=8,
    )
)
def test_what_is_remembered_is_what_was_worked_out(heads: list[dict[str, str]]) -> None:
    kept = _resolver()
    for head in heads:
        stanza = _stanza(**head)
        seen, fresh = kept.of(stanza), _resolver().of(stanza)
        assert (seen.to, seen.host, seen.child, seen.sender.jid, seen.sender.admitted) == (
            *(fresh.to, fresh.host, fresh.child),
            *(fresh.sender.jid, fresh.sender.admitted),
        )
        assert (seen.route is None) == (fresh.route is None) == (seen.host is None)
        assert seen.child == Do.xml.tag
