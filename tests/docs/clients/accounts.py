"""What the account of the person has before a client logs in: contacts, and bookmarks of rooms."""

from xml.sax.saxutils import quoteattr

from tests.docs.clients.client import PERSON
from tests.servers.base import Server
from tests.servers.talk import login
from tests.servers.watching import assert_result


def bookmark(server: Server, room: str) -> None:
    """Have the clients of the person join a room after the login (XEP-0048): both servers give this
    bookmark to clients that ask for newer ones.
    """
    conference = f"<conference jid={quoteattr(room)} name='Garden' autojoin='true'>"
    storage = f"{conference}<nick>{PERSON}</nick></conference>"
    query = f"<storage xmlns='storage:bookmarks'>{storage}</storage>"
    with login(server) as client:
        assert_result(client.iq(None, f"<query xmlns='jabber:iq:private'>{query}</query>", "set"))


def add_contact(server: Server, contact: str) -> None:
    """Have a contact in the roster, whose presence is known."""
    with login(server) as client:
        roster = f"<query xmlns='jabber:iq:roster'><item jid='{contact}' name='Assistant'/></query>"
        assert_result(client.iq(None, roster, "set"))
        client.send_raw(f"<presence to='{contact}' type='subscribe'/>")
        client.presences.take(lambda presence: presence.get("from") == f"{contact}/agent")
