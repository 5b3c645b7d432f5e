"""Uses ordinary accounts on ordinary servers, with slixmpp, an independent library.

An error in `xep` affects both sides of the other two drivers; here the stream, the login and the
parser are independent. slixmpp requires asyncio, so this driver works on that event loop alone.
"""

import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, tostring

import anyio

from conformance.drivers import Cast, Deliver, DriverError, Part
from conformance.drivers.deliveries import Deliveries
from conformance.drivers.link import HANDSHAKE
from conformance.model import Ability
from xep.stanza import Incoming


@dataclass(frozen=True)
class Account:
    """An account to log in with."""

    jid: str
    password: str


@dataclass(frozen=True)
class Server:
    """The server of the accounts.

    Attributes:
        host: None looks the server up by the domain of the account.
        port: its port for clients.
        ca_file: a PEM file of an authority to trust.
        insecure: whether a server without a valid certificate, or without TLS, is accepted.
    """

    host: str | None = None
    port: int | None = None
    ca_file: str | None = None
    insecure: bool = False


class ClientDriver:
    """Logs in as the caller, once for each lane and once more, and as a stranger and a refused
    principal if they are given.
    """

    lanes = 4
    ordered = 1

    def __init__(
        self,
        server: Server,
        caller: Account,
        *,
        stranger: Account | None = None,
        refused: Account | None = None,
        hostile: bool = False,
    ) -> None:
        self.name = f"client {caller.jid}, through slixmpp"
        self._server = server
        self._accounts = {f"caller {number}": caller for number in range(self.lanes)}
        self._accounts["other"] = caller
        abilities = {Ability.RESOURCE, Ability.ORIGIN}
        if stranger is not None:
            self._accounts["stranger"] = stranger
            abilities.add(Ability.STRANGER)
        if refused is not None:
            self._accounts["refused"] = refused
            abilities.add(Ability.REFUSED)
        if hostile:
            abilities.add(Ability.HOSTILE)
        self.abilities = frozenset(abilities)
        self._sessions: dict[str, _Session] = {}
        self._lent: dict[str, str] = {}

    def cast(self, lane: str, *, ordered: bool = False) -> Cast:
        """Return a separate resource of the caller for each check; the other accounts have one
        each.

        Messages to the bare JID arrive on the first resource's stream. Two streams have no common
        order, so that resource is for checks that depend on the order.
        """
        jids = {part: session.jid for part, session in self._sessions.items()}
        callers = [jid for part, jid in jids.items() if part.startswith("caller")]
        free = [jid for jid in callers[1:] if jid not in self._lent.values()]
        self._lent[lane] = caller = callers[0] if ordered or not free else free[0]
        return Cast(caller, jids["other"], jids.get("stranger"), jids.get("refused"))

    def streams(self, cast: Cast) -> tuple[str, ...]:
        """Return the resources of all lanes, and the other resource."""
        jids = (self._sessions[part].jid for part in self._accounts if part.startswith("caller"))
        return (*jids, self._sessions["other"].jid)

    def done(self, lane: str) -> None:
        """Release the resource of a check."""
        self._lent.pop(lane, None)

    @contextlib.asynccontextmanager
    async def open(self, deliver: Deliver) -> AsyncIterator[None]:
        """Log in with all accounts.

        Raises:
            DriverError: slixmpp is not installed, or a login failed.
        """
        now = datetime.now(UTC)
        deliveries = {one.jid: Deliveries(one.jid, now) for one in self._accounts.values()}
        async with contextlib.AsyncExitStack() as stack:
            for part, account in self._accounts.items():
                # A message to the bare JID should arrive once: RFC 6121 §8.5.2.1.
                again = account is self._accounts["caller 0"] and part != "caller 0"
                priority = -1 if again else 0
                take = _only_new(deliveries[account.jid], deliver)
                session = _Session(self._server, account, take, priority)
                stack.push_async_callback(session.close)
                await session.open()
                self._sessions[part] = session
            yield

    def play(self, address: str, part: Part) -> None:
        """Do nothing: never called without `Ability.PEER`."""
        raise AssertionError("slixmpp answers for the accounts that it logs in")

    def stop(self, address: str, part: Part) -> None:
        """Do nothing: never called without `Ability.PEER`."""
        raise AssertionError("slixmpp answers for the accounts that it logs in")

    async def send(self, sender: str, xml: str) -> None:
        """Send a stanza on the stream of ``sender``."""
        for session in self._sessions.values():
            if session.jid == sender:
                session.send(xml)
                return
        raise AssertionError(f"nobody has logged in as {sender}")


class _Session:
    """One login."""

    def __init__(self, server: Server, account: Account, deliver: Deliver, priority: int) -> None:
        self.jid = ""
        self._account = account
        self._server = server
        self._changed = anyio.Event()
        self._why = ""
        self._priority = priority
        self._xmpp = _client(server, account, lambda element: deliver(_incoming(element)))

    async def open(self) -> None:
        xmpp = self._xmpp
        xmpp.add_event_handler("session_start", self._started)
        xmpp.add_event_handler("failed_all_auth", self._failed("the password is not accepted"))
        xmpp.add_event_handler("ssl_invalid_chain", self._failed("its certificate is not trusted"))
        xmpp.add_event_handler("connection_failed", self._failed("nobody listens there"))
        xmpp.add_event_handler("disconnected", self._failed("the stream ended"))
        xmpp.connect(self._server.host, self._server.port)
        with anyio.move_on_after(HANDSHAKE):
            await self._changed.wait()
        if not self.jid:
            why = self._why or f"it took more than {HANDSHAKE:g} s"
            raise DriverError(f"Cannot log in as {self._account.jid}: {why}.")

    def send(self, xml: str) -> None:
        if not self._xmpp.is_connected():
            raise DriverError(f"The stream of {self.jid} is gone.")
        self._xmpp.send_raw(xml)

    async def close(self) -> None:
        self._xmpp.cancel_connection_attempt()
        if self._xmpp.is_connected():
            with anyio.CancelScope(shield=True), anyio.move_on_after(3):
                await self._xmpp.disconnect(wait=1.0)

    def _started(self, _event: object) -> None:
        self._xmpp.send_raw(f"<presence><priority>{self._priority}</priority></presence>")
        self.jid = str(self._xmpp.boundjid)
        self._changed.set()

    def _failed(self, why: str) -> Callable[[object], None]:
        def failed(_event: object) -> None:
            self._why = self._why or why
            self._changed.set()

        return failed


def _only_new(deliveries: Deliveries, deliver: Deliver) -> Deliver:
    def take(stanza: Incoming) -> None:
        if deliveries.is_new(stanza):
            deliver(stanza)

    return take


def _client(server: Server, account: Account, take: Callable[[Element], None]) -> Any:
    """Return a slixmpp client that passes on each stanza as it was received."""
    try:
        import slixmpp  # noqa: PLC0415 - an extra; only who uses this driver needs it
    except ImportError:
        raise DriverError(
            "Logging in as a client needs slixmpp:"
            " pip install 'xmpp-agent-component[conformance-client]'"
        ) from None

    class Client(slixmpp.ClientXMPP):
        def incoming_filter(self, xml: Element) -> Element:
            # The only place where slixmpp shows a stanza before it adds its own attributes.
            take(xml)
            return xml

    plain = {"unencrypted_plain": server.insecure, "unencrypted_scram": server.insecure}
    xmpp: Any = Client(account.jid, account.password, plugin_config={"feature_mechanisms": plain})
    xmpp.enable_direct_tls = False
    xmpp.enable_starttls = True
    xmpp.enable_plaintext = server.insecure
    if server.insecure:
        xmpp.ssl_context.check_hostname = False
        xmpp.ssl_context.verify_mode = ssl.CERT_NONE
    elif server.ca_file is not None:
        xmpp.ca_certs = Path(server.ca_file)
    xmpp.auto_authorize = None  # the checks answer the target's requests
    xmpp.auto_subscribe = False
    for plugin in ("xep_0030", "xep_0199"):
        xmpp.register_plugin(plugin)
    return xmpp


def _incoming(element: Element) -> Incoming:
    return Incoming.of(element, len(tostring(element)))
