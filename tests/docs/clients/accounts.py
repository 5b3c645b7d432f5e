"""What the account of the person has before a client logs in: contacts, and bookmarks of rooms."""

from xml.sax.saxutils import quoteattr

from tests.docs.clients.client import PERSON
from tests.servers.base import Server
from tests.servers.talk import login
from tests.servers.watching import assert_result

BOOKMARKS = "urn:xmpp:bookmarks:1"
NICK = "http://jabber.org/protocol/nick"


def bookmark(server: Server, room: str) -> None:
    """Have the clients of the person join a room after the login (XEP-0402), or be called there as
    in the bookmark (XEP-0172).
    """
    inside = (
        f"<publish node='{BOOKMARKS}'><item id={quoteattr(room)}>"
        f"<conference xmlns='{BOOKMARKS}' name='Garden' autojoin='true'><nick>{PERSON}</nick>"
        "</conference></item></publish><publish-options><x xmlns='jabber:x:data' type='submit'>"
        "<field var='FORM_TYPE' type='hidden'>"
        "<value>http://jabber.org/protocol/pubsub#publish-options</value></field>"
        "<field var='pubsub#persist_items'><value>true</value></field>"
        "<field var='pubsub#access_model'><value>whitelist</value></field>"
        "</x></publish-options>"
    )
    with login(server) as client:
        nick = f"<item><nick xmlns='{NICK}'>{PERSON}</nick></item>"
        for each in (inside, f"<publish node='{NICK}'>{nick}</publish>"):
            pubsub = f"<pubsub xmlns='http://jabber.org/protocol/pubsub'>{each}</pubsub>"
            assert_result(client.iq(None, pubsub, "set"))


def add_contact(server: Server, contact: str) -> None:
    """Have a contact in the roster, whose presence is known."""
    with login(server) as client:
        roster = f"<query xmlns='jabber:iq:roster'><item jid='{contact}' name='Assistant'/></query>"
        assert_result(client.iq(None, roster, "set"))
        client.send_raw(f"<presence to='{contact}' type='subscribe'/>")
        client.presences.take(lambda presence: presence.get("from") == f"{contact}/agent")
