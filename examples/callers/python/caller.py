"""Runs a skill of an agent: python caller.py JID AGENT SKILL [NAME=VALUE]...

The password is in the variable PASSWORD, and the variables HOST and PORT name another server than
that of the JID. pip install 'xmpp-agent-client[slixmpp]'
"""

import asyncio
import json
import os
import sys

import slixmpp

from xmpp_agent_client import Agents, CallError, Confirmation, Task, slixmpp_plugin


async def run(agents: Agents, agent: str, skill: str, params: dict[str, str]) -> int:
    """Execute the skill and wait for its end; return an exit code."""
    execution = await agents.at(agent).execute(skill, texts=params)
    async for news in execution:
        if isinstance(news, Task):
            print(news.state)
        elif isinstance(news, Confirmation):
            print(f"{news.skill} {json.dumps(news.params)}?")
            # If the digest is of something else, this is not what would run.
            approve = news.genuine is not False and await line() == "yes"
            await agents.decide(news, approve=approve)
    result = await execution.result()
    print(result.text)
    return int(result.is_error)


async def line() -> str:
    """Return a line that is typed. A thread that reads it could not be ended by Ctrl-C."""
    typed = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin, typed.set)
    await typed.wait()
    asyncio.get_running_loop().remove_reader(sys.stdin)
    return sys.stdin.readline().strip()


async def main(jid: str, agent: str, skill: str, *params: str) -> int:
    """Log in, execute the skill, and log out."""
    xmpp = slixmpp.ClientXMPP(jid, os.environ["PASSWORD"])
    xmpp.enable_direct_tls = False  # the port is that of STARTTLS
    if "CA_FILE" in os.environ:  # of an authority that the system does not know
        xmpp.ca_certs = os.environ["CA_FILE"]
    agents = slixmpp_plugin.register(xmpp)
    xmpp.add_event_handler("session_start", lambda _: xmpp.send_presence())
    xmpp.connect(os.environ.get("HOST", xmpp.boundjid.host), int(os.environ.get("PORT", "5222")))
    try:
        return await run(agents, agent, skill, dict(one.split("=", 1) for one in params))
    except CallError as error:
        print(error)
        return 1
    finally:
        await xmpp.disconnect()


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*sys.argv[1:])))
