"""A person's client, run as: person.py JID PASSWORD CA_FILE.

Each line of standard input is a JSON array of a recipient and a text; each message that comes is a
JSON array of its sender and its text, in a line of standard output. The first line is "ready".
"""

import asyncio
import json
import sys

import slixmpp


class Person(slixmpp.ClientXMPP):
    """Says what comes on standard input."""

    def __init__(self, jid: str, password: str, authority: str) -> None:
        super().__init__(jid, password)
        self.ca_certs = authority
        self.enable_direct_tls = False
        self.add_event_handler("session_start", self.begin)
        self.add_event_handler("message", self.show)

    async def begin(self, _: object) -> None:
        """Become available, and listen to standard input."""
        self.send_presence()
        await self.get_roster()
        self.loop.add_reader(sys.stdin, self.say)
        print("ready", flush=True)

    def say(self) -> None:
        """Send one message; log out at the end of the input."""
        line = sys.stdin.readline()
        if not line:
            self.loop.remove_reader(sys.stdin)
            self.disconnect()
            return
        to, text = json.loads(line)
        self.send_message(to, text, mtype="chat")

    def show(self, message: slixmpp.Message) -> None:
        """Print a message that has a text."""
        if message["body"]:
            print(json.dumps([message["from"].bare, message["body"]]), flush=True)


async def main() -> None:
    """Log in at the server of the JID on this machine, until the end of the input."""
    person = Person(*sys.argv[1:])
    person.connect("localhost", 5222)
    await person.disconnected


if __name__ == "__main__":
    asyncio.run(main())
