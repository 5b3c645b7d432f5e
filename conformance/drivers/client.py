"""Uses ordinary accounts on ordinary servers, with slixmpp, an independent library.

An error in `xep` affects both sides of the other two drivers; here the stream, the login and the
parser are independent. slixmpp requires asyncio, so this driver works on that event loop alone.
"""

import contextlib
import logging
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from xml.etree.ElementTree import Element, tostring

import anyio

from conformance.drivers import Cast, Deliver, DriverError, Part
from conformance.drivers.deliveries import Deliveries
from conformance.drivers.failures import ended, no_answer, no_connection, not_xmpp, tls_failed
from conformance.drivers.link import HANDSHAKE
from conformance.model import Ability
from xep.stanza import Incoming

_PORT = 5222
_STREAM = "{http://etherx.jabber.org/streams}stream"


@dataclass(frozen=True)
class Account:
    """An account to log in with.

    Attributes:
        jid: its address.
        password: its password.
        options: the options of the command line that set the two.
    """

    jid: str
    password: str
    options: tuple[str, str] = ("--jid", "--password-env")


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
        self._peer = ""
        self._attempt: Any = None  # the error of the last attempt to connect
        self._refusals: list[str] = []
        self._failure: DriverError | None = None
        self._priority = priority
        self._xmpp = _client(server, account, lambda element: deliver(_incoming(element)))

    async def open(self) -> None:
        xmpp = self._xmpp
        domain = self._account.jid.partition("/")[0].rpartition("@")[2]
        host, port = self._server.host or domain, self._server.port or _PORT
        self._peer = f"{host}:{port}"
        for event, handler in (
            ("session_start", self._started),
            ("connection_failed", self._not_connected),
            ("unreachable", lambda _: self._fail(no_connection(self._peer, self._attempt))),
            ("ssl_invalid_chain", lambda e: self._fail(tls_failed(self._peer, domain, e))),
            ("failed_auth", lambda stanza: self._refusals.append(stanza["condition"])),
            ("failed_all_auth", self._not_authenticated),
            ("stream_error", self._stream_failed),
            ("disconnected", self._ended),
        ):
            xmpp.add_event_handler(event, handler)
        # By default the domain's records in DNS say where its server is.
        given = self._server.host is not None or self._server.port is not None
        xmpp.connect(*((host, port) if given else ()))
        with anyio.move_on_after(HANDSHAKE):
            await self._changed.wait()
        if not self.jid:
            raise self._failure or no_answer(self._peer, HANDSHAKE)

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

    def _fail(self, failure: DriverError) -> None:
        self._failure = self._failure or failure  # the first one is the cause of the others
        self._changed.set()

    def _not_connected(self, error: object) -> None:
        self._attempt = error  # there may be other addresses

    def _not_authenticated(self, _event: object) -> None:
        xmpp, jid = self._xmpp, self._account.jid
        jid_option, password_option = self._account.options
        offered = ", ".join(sorted(xmpp.plugin["feature_mechanisms"].mech_list)) or "none"
        if self._refusals:
            why = (
                f"{self._peer} does not accept the password of {jid} ({self._refusals[0]}): correct"
                f" {jid_option}, or the variable that {password_option} names."
            )
        elif "starttls" not in xmpp.features and not self._server.insecure:
            why = (
                f"{self._peer} offers no encryption, so the password of {jid} is not sent: turn"
                " STARTTLS on, or allow it on a test server with --insecure."
            )
        else:
            why = (
                f"{self._peer} offers {jid} no mechanism that can be used here (it offers:"
                f" {offered}): turn SCRAM-SHA-256, SCRAM-SHA-1 or PLAIN on in the server, or use"
                f" another account with {jid_option}."
            )
        self._fail(DriverError(why))

    def _stream_failed(self, error: Any) -> None:
        self._fail(ended(self._peer, str(error["condition"]), self._account.options[0]))

    def _ended(self, _reason: object) -> None:
        if self._xmpp.starts_tls:
            return  # why TLS failed comes after this
        opened = self._xmpp.opened
        option = self._account.options[0]
        self._fail(ended(self._peer, "", option) if opened else not_xmpp(self._peer, "clients"))


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
        opened = False  # whether the peer has opened an XMPP stream
        starts_tls = False

        def start_stream_handler(self, xml: Element) -> None:
            self.opened = self.opened or xml.tag == _STREAM
            super().start_stream_handler(xml)  # type: ignore[no-untyped-call]  # slixmpp's

        async def start_tls(self) -> bool:
            self.starts_tls = True
            succeeded = bool(await super().start_tls())
            self.starts_tls = False
            if not succeeded:
                self.event("disconnected", None)
            return succeeded

        def reschedule_connection_attempt(self) -> None:
            # All addresses were tried.
            self.event("unreachable")

        def incoming_filter(self, xml: Element) -> Element:
            # The only place where slixmpp shows a stanza before it adds its own attributes.
            take(xml)
            return xml

    # What it logs about a failed log-in is in our sentence.
    logging.getLogger("slixmpp").addHandler(logging.NullHandler())
    plain = {"unencrypted_plain": server.insecure, "unencrypted_scram": server.insecure}
    xmpp: Any = Client(account.jid, account.password, plugin_config={"feature_mechanisms": plain})
    xmpp.enable_direct_tls = False
    xmpp.enable_starttls = True
    xmpp.enable_plaintext = server.insecure
    if server.insecure:
        xmpp.ssl_context.check_hostname = False
        xmpp.ssl_context.verify_mode = ssl.CERT_NONE
    elif server.ca_file is not None:
        try:
            xmpp.ssl_context.load_verify_locations(server.ca_file)
        except OSError as error:
            raise DriverError(
                f"--ca-file {server.ca_file} is not a file of certificates in PEM: {error}"
            ) from None
    xmpp.auto_authorize = None  # the checks answer the target's requests
    xmpp.auto_subscribe = False
    for plugin in ("xep_0030", "xep_0199"):
        xmpp.register_plugin(plugin)
    return xmpp


def _incoming(element: Element) -> Incoming:
    return Incoming.of(element, len(tostring(element)))
