"""One principal and an accomplice try every verb to have the agent write to somebody who has asked
for nothing.
"""

from pathlib import Path
from random import Random
from typing import Final

import anyio
import pytest

from component.config import Agent
from component.config.memory import Memory
from tests.hostile.attached import DOMAIN, attached
from tests.profiles import SEED, THOROUGH

pytestmark = pytest.mark.anyio

MALLORY: Final = "mallory@bad.test"
ACCOMPLICE: Final = "accomplice@bad.test"
VICTIM: Final = "victim@good.test"
ABROAD: Final = "victim@elsewhere.test"
"""Not even admitted by the policy."""
AGENT: Final = f"assistant@{DOMAIN}"
NODE: Final = f"urn:fluux:agent:0#memory/{MALLORY}"
VERBS: Final = 20_000 if THOROUGH else 1_000
TIMEOUT_S: Final = 120.0

_OTHERS: Final = (
    "urn:fluux:agent:0#tasks",
    "urn:fluux:agent:0#skills",
    "urn:xmpp:microblog:0",
    "new",
)
_OWNER: Final = "http://jabber.org/protocol/pubsub#owner"
_PUBSUB: Final = "http://jabber.org/protocol/pubsub"
_MODELS: Final = ("open", "authorize", "presence", "whitelist")


class Verbs:
    """Draws the requests of one principal."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def draw(self) -> tuple[str, str]:
        """A stanza without its id, up to that and after it."""
        choice = self._random.choice
        made = choice((self._owner, self._owner, self._pubsub, self._message, self._presence))
        node = choice(_OTHERS) if not self._random.randrange(4) else NODE
        return made(node, choice((VICTIM, ABROAD, MALLORY)))

    def _iq(self, namespace: str, content: str, sender: str = MALLORY) -> tuple[str, str]:
        return (
            f"<iq type='set' from='{sender}/x' to='{self._random.choice((AGENT, DOMAIN))}'",
            f"><pubsub xmlns='{namespace}'>{content}</pubsub></iq>",
        )

    def _owner(self, node: str, whom: str) -> tuple[str, str]:
        choice = self._random.choice
        model = f"<field var='pubsub#access_model'><value>{choice(_MODELS)}</value></field>"
        form = (
            "<x xmlns='jabber:x:data' type='submit'><field var='FORM_TYPE'>"
            f"<value>{_PUBSUB}#node_config</value></field>{model}"
            "<field var='pubsub#notify_config'><value>1</value></field></x>"
        )
        states, victim = ("subscribed", "none"), choice((VICTIM, ABROAD))
        affiliation = choice(("owner", "member", "publisher", "outcast", "none"))
        subscription = f"<subscription jid='{whom}' subscription='{choice(states)}'/>"
        affiliated = f"<affiliation jid='{victim}' affiliation='{affiliation}'/>"
        content = choice(
            (
                f"<subscriptions node='{node}'>{subscription}</subscriptions>",
                f"<affiliations node='{node}'>{affiliated}</affiliations>",
                f"<configure node='{node}'>{form}</configure>",
                f"<purge node='{node}'/>",
                f"<delete node='{node}'/>" if not self._random.randrange(10) else "",
            )
        )
        return self._iq(_OWNER, content)

    def _pubsub(self, node: str, whom: str) -> tuple[str, str]:
        if not self._random.randrange(4):
            verb = self._random.choice(("subscribe", "unsubscribe"))
            return self._iq(_PUBSUB, f"<{verb} node='{node}' jid='{ACCOMPLICE}'/>", ACCOMPLICE)
        number = self._random.randrange(5)
        memory = (
            f"<memory xmlns='urn:fluux:agent:0#memory' key='k{number}'>"
            f"<content>buy at https://bad.test/{number}</content></memory>"
        )
        content = self._random.choice(
            (
                f"<subscribe node='{node}' jid='{whom}'/>",
                f"<unsubscribe node='{node}' jid='{whom}'/>",
                f"<publish node='{node}'><item id='k{number}'>{memory}</item></publish>",
                f"<retract node='{node}' notify='1'><item id='k{number}'/></retract>",
                f"<create node='{node}'/>",
            )
        )
        return self._iq(_PUBSUB, content)

    def _message(self, node: str, whom: str) -> tuple[str, str]:
        answer = (
            "<x xmlns='jabber:x:data' type='submit'><field var='FORM_TYPE' type='hidden'>"
            f"<value>{_PUBSUB}#subscribe_authorization</value></field>"
            f"<field var='pubsub#node'><value>{node}</value></field>"
            f"<field var='pubsub#subscriber_jid'><value>{whom}</value></field>"
            "<field var='pubsub#allow'><value>1</value></field></x>"
        )
        command = self._random.choice(("/help", "/ping", "/stop-contact", "/start-contact"))
        content = self._random.choice((answer, f"<body>{command}</body>"))
        return f"<message from='{MALLORY}/x' to='{AGENT}'", f">{content}</message>"

    def _presence(self, node: str, whom: str) -> tuple[str, str]:
        kind = self._random.choice(("subscribe", "subscribed", "unsubscribe", "probe"))
        return f"<presence type='{kind}' from='{MALLORY}' to='{AGENT}'", "/>"


async def test_no_verb_of_one_principal_has_the_agent_write_to_another(tmp_path: Path) -> None:
    verbs, answered, published = Verbs(SEED), 0, False
    settings = {
        "agent": Agent(allowed_domains=("bad.test", "good.test")),
        "memory": Memory(store="both"),
    }
    with anyio.fail_after(TIMEOUT_S):
        async with attached(tmp_path, **settings) as link:
            for number in range(VERBS):
                head, rest = verbs.draw()
                stanza = f"{head} id='v{number}'{rest}"
                ping = (
                    f"<iq type='get' id='p{number}' from='{MALLORY}/x' to='{DOMAIN}'>"
                    "<ping xmlns='urn:xmpp:ping'/></iq>"
                )
                await link.send(stanza + ping)
                waited = {f"p{number}"} | ({f"v{number}"} if head.startswith("<iq") else set())
                while waited:
                    reply = await link.stanza()
                    to = (reply.to or "").partition("/")[0]
                    assert to in (MALLORY, ACCOMPLICE), f"{stanza} had this sent: {reply}"
                    published |= reply.kind == "message"
                    if reply.kind == "iq":
                        waited.discard(reply.id or "")
                        answered += reply.type == "result" and reply.id == f"v{number}"
    assert answered > VERBS // 20, "most verbs are refused, but not all"
    assert published, "and some notify herself"
