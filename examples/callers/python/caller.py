"""Runs a skill of an agent: python caller.py JID AGENT SKILL [NAME=VALUE]...

The password is in the variable PASSWORD, and the variables HOST and PORT name another server than
that of the JID. pip install slixmpp
"""

import asyncio
import os
import sys
import uuid
from xml.etree.ElementTree import Element, SubElement

import slixmpp
from slixmpp.exceptions import XMPPError
from slixmpp.xmlstream.handler import Callback
from slixmpp.xmlstream.matcher import MatchXPath

EXECUTE, TASK = "urn:fluux:agent:0#execute", "urn:fluux:agent:0#task"
CONFIRM = "urn:fluux:agent:0#confirm"
HASH = "{urn:xmpp:hashes:2}hash"
ENDED = ("completed", "failed", "cancelled", "rejected")


class Caller(slixmpp.ClientXMPP):
    """An ordinary client that executes a skill and follows the task that may come of it."""

    def __init__(self, jid: str, password: str, agent: str) -> None:
        super().__init__(jid, password)
        self.agent = agent
        self.heard: asyncio.Queue[Element] = asyncio.Queue()
        self.enable_direct_tls = False  # the port is that of STARTTLS
        self.register_plugin("xep_0030")  # the agent asks what we are
        for child in (f"{{{TASK}}}task", f"{{{CONFIRM}}}confirm"):
            path = MatchXPath(f"{{jabber:client}}message/{child}")
            self.register_handler(Callback(child, path, self.hear))

    def hear(self, message: slixmpp.Message) -> None:
        """Keep what the agent sends, and nobody else."""
        if message["from"].bare == self.agent:
            self.heard.put_nowait(message.xml)

    async def ask(self, kind: str, payload: Element) -> Element:
        """Send an IQ; return the payload of its result. Raises XMPPError."""
        iq = self.make_iq(itype=kind, ito=self.agent)
        iq.append(payload)
        answer = await iq.send()
        return next(iter(answer.xml), Element("none"))

    async def run(self, skill: str, params: dict[str, str]) -> int:
        """Execute the skill and wait for its end; return an exit code."""
        # With the same `request`, this may be sent again if the answer is lost: it runs once.
        execute = Element(f"{{{EXECUTE}}}execute", skill=skill, request=str(uuid.uuid4()))
        for name, value in params.items():
            SubElement(execute, f"{{{EXECUTE}}}param", name=name).text = value
        answer = await self.ask("set", execute)
        if answer.tag == f"{{{EXECUTE}}}result":
            return show(answer)
        print("accepted")
        wait_s = float(answer.get("poll-after", "5"))
        return await self.follow(answer.get("task", ""), wait_s)

    async def follow(self, task: str, wait_s: float) -> int:
        """Follow a task to its end, by its messages, and by asking if none comes."""
        revision = 0
        while True:
            try:
                message = await asyncio.wait_for(self.heard.get(), wait_s)
            except TimeoutError:
                news = await self.ask("get", Element(f"{{{TASK}}}task", id=task))
            else:
                confirm = message.find(f"{{{CONFIRM}}}confirm")
                if confirm is not None and confirm.get("task") == task:
                    await self.decide(confirm, message.findtext("{*}body", ""))
                    continue
                news = message.find(f"{{{TASK}}}task")
            if news is None or news.get("id") != task or int(news.get("revision", "0")) <= revision:
                continue  # of another task, or it was heard before
            revision = int(news.get("revision", "0"))
            print(news.get("state"))
            result = news.find(f"{{{EXECUTE}}}result")
            if result is not None:
                return show(result)
            if news.get("state") in ENDED:
                print(news.findtext(".//{*}text", ""))
                return 1

    async def decide(self, confirm: Element, question: str) -> None:
        """Have a person answer. The digest makes the answer one to exactly what was shown."""
        print(question)
        typed = asyncio.Event()  # a thread that reads the line could not be ended by Ctrl-C
        self.loop.add_reader(sys.stdin, typed.set)
        await typed.wait()
        self.loop.remove_reader(sys.stdin)
        value = "approve" if sys.stdin.readline().strip() == "yes" else "deny"
        decision = Element(f"{{{CONFIRM}}}decision", id=confirm.get("id", ""), value=value)
        digest = confirm.find(HASH)
        if digest is not None:
            decision.append(digest)
        await self.ask("set", decision)


def show(result: Element) -> int:
    """Print the outputs of a result; return an exit code."""
    for output in result.findall(f"{{{EXECUTE}}}output"):
        print(output.text or "")
    return 1 if result.get("is-error") == "true" else 0


async def main(jid: str, agent: str, skill: str, *params: str) -> int:
    """Log in, execute the skill, and log out."""
    caller = Caller(jid, os.environ["PASSWORD"], agent)
    if "CA_FILE" in os.environ:  # of an authority that the system does not know
        caller.ca_certs = os.environ["CA_FILE"]
    logged_in: asyncio.Queue[bool] = asyncio.Queue()
    caller.add_event_handler("session_start", lambda _: logged_in.put_nowait(True))
    for failure in ("connection_failed", "failed_all_auth", "ssl_invalid_chain"):
        caller.add_event_handler(failure, lambda _: logged_in.put_nowait(False))
    host, port = os.environ.get("HOST", caller.boundjid.host), os.environ.get("PORT", "5222")
    caller.connect(host, int(port))
    if not await logged_in.get():
        print("The log-in failed.")
        return 1
    caller.send_presence()
    try:
        return await caller.run(skill, dict(one.split("=", 1) for one in params))
    except XMPPError as error:
        print(f"{error.condition}: {error.text}")
        return 1
    finally:
        await caller.disconnect()


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*sys.argv[1:])))
