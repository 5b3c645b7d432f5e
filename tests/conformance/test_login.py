"""A log-in of the kit that fails, at real sockets.

The error says what was tried, why it failed, and which option changes it.
"""

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from click.testing import CliRunner

from conformance.cli import EXIT_UNREACHED, EXIT_USAGE, command
from tests.component.cli.embedded import Embedded, embedded_server

JULIET = "juliet@localhost"
HEADER = (
    "<?xml version='1.0'?><stream:stream xmlns='jabber:client' id='1' from='localhost'"
    " version='1.0' xmlns:stream='http://etherx.jabber.org/streams'>"
)
STARTTLS = "<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>"
PROCEED = "<proceed xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>"
UNUSABLE = (
    "<mechanisms xmlns='urn:ietf:params:xml:ns:xmpp-sasl'><mechanism>X-SECRET-HANDSHAKE</mechanism>"
    "</mechanisms>"
)


@pytest.fixture(scope="module")
def embedded() -> Iterator[Embedded]:
    with embedded_server() as server:
        yield server


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def reason(*options: str, variable: str = "", code: int = EXIT_UNREACHED) -> str:
    """The error of the kit with these options."""
    environment = {"PASSWORD": variable or "p", "SECRET": variable or "s"}
    result = CliRunner().invoke(command, ["agent.localhost", *options], env=environment)
    assert result.exit_code == code, result.output
    (line,) = [one for one in result.output.splitlines() if one.lower().startswith("error: ")]
    return line


@contextlib.contextmanager
def serving(talk: Callable[[socket.socket], None]) -> Iterator[str]:
    """Have a server talk to each client in its own way; the value is its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:  # it is over
                    return
                with client, contextlib.suppress(OSError):
                    talk(client)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield str(listener.getsockname()[1])
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def says(client: socket.socket, text: str) -> None:
    """Wait until the client has said something, and answer."""
    client.recv(65536)
    client.sendall(text.encode())


def features(inside: str) -> str:
    return f"{HEADER}<stream:features>{inside}</stream:features>"


def drain(client: socket.socket) -> None:
    while client.recv(65536):
        pass


def to_tls(client: socket.socket, certificate: trustme.LeafCert) -> ssl.SSLSocket:
    """Lead the client to TLS as servers do."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    says(client, features(STARTTLS))
    says(client, PROCEED)
    return context.wrap_socket(client, server_side=True)


@contextlib.contextmanager
def refused_port() -> Iterator[str]:
    """A port that nobody listens on, and nobody else takes."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield str(bound.getsockname()[1])


CLIENT = ("--jid", JULIET, "--host", "127.0.0.1", "--port")
COMPONENT = ("--component", "kit.localhost", "--host", "127.0.0.1", "--port")
WAYS = pytest.mark.parametrize("way", [CLIENT, COMPONENT], ids=["client", "component"])


@WAYS
def test_a_port_that_refuses(way: tuple[str, ...]) -> None:
    with refused_port() as port:
        said = reason(*way, port)
    assert f"127.0.0.1:{port} refuses connections" in said
    assert "--host and --port" in said


@WAYS
def test_a_host_that_does_not_resolve(
    way: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve = socket.getaddrinfo

    def unknown(host: Any, *rest: Any, **named: Any) -> Any:
        if host in ("no-such-host.invalid", b"no-such-host.invalid"):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return resolve(host, *rest, **named)

    monkeypatch.setattr(socket, "getaddrinfo", unknown)  # tests ask no resolver
    said = reason(*way[:3], "no-such-host.invalid", "--port", "5222")
    assert "The host name of no-such-host.invalid:5222 does not resolve" in said
    assert "--host" in said
    assert "DNS" in said


@WAYS
def test_what_is_no_xmpp_server(way: tuple[str, ...]) -> None:
    with serving(lambda client: says(client, "HTTP/1.1 400 Bad Request\r\n\r\n")) as port:
        said = reason(*way, port)
    assert (
        f"127.0.0.1:{port} accepts connections, but does not answer as an XMPP server's port"
        in said
    )
    assert f"for {way[0][2:].replace('jid', 'client')}s does: name that port with --port" in said


@WAYS
def test_a_server_that_closes_at_once(way: tuple[str, ...]) -> None:
    with serving(lambda client: None) as port:
        assert "does not answer as an XMPP server" in reason(*way, port)


def test_a_certificate_that_nobody_has_signed(embedded: Embedded) -> None:
    port = str(embedded.c2s_port)
    said = reason(*CLIENT, port, variable=embedded.accounts["juliet"])
    assert f"The certificate of 127.0.0.1:{port} is not accepted" in said
    assert "certificate" in said.partition("(")[2].partition(")")[0]
    assert "--ca-file" in said
    assert "--insecure" in said


def test_a_certificate_for_another_name(authority: trustme.CA, tmp_path: Path) -> None:
    ca_file = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(ca_file))
    certificate = authority.issue_cert("other.example")
    with serving(lambda client: drain(to_tls(client, certificate))) as port:
        said = reason(*CLIENT, port, "--ca-file", str(ca_file))
    assert "not valid for 'localhost'" in said
    assert "valid for localhost, the domain of the account" in said


def test_a_file_of_authorities_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing")
    with refused_port() as port:
        said = reason(*CLIENT, port, "--ca-file", str(tmp_path / "ca.pem"))
        assert "ca.pem is not a file of certificates in PEM" in said
        missing = reason(*CLIENT, port, "--ca-file", str(tmp_path / "no.pem"), code=EXIT_USAGE)
    assert "--ca-file" in missing


def test_a_password_that_is_wrong(embedded: Embedded) -> None:
    port = str(embedded.c2s_port)
    said = reason(*CLIENT, port, "--ca-file", str(embedded.ca_file), variable="wrong")
    assert f"does not accept the password of {JULIET} (not-authorized)" in said
    assert "--password-env" in said
    assert "--jid" in said


def test_a_second_password_that_is_wrong(
    embedded: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECOND", "wrong")
    second = ("--second-jid", "romeo@localhost", "--second-password-env", "SECOND")
    said = reason(
        *CLIENT,
        str(embedded.c2s_port),
        "--ca-file",
        str(embedded.ca_file),
        *second,
        variable=embedded.accounts["juliet"],
    )
    assert "does not accept the password of romeo@localhost (not-authorized)" in said
    assert "--second-password-env" in said


def test_a_server_without_a_mechanism(authority: trustme.CA, tmp_path: Path) -> None:
    ca_file = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(ca_file))
    certificate = authority.issue_cert("localhost")

    def talk(client: socket.socket) -> None:
        with to_tls(client, certificate) as encrypted:
            says(encrypted, features(UNUSABLE))
            drain(encrypted)

    with serving(talk) as port:
        said = reason(*CLIENT, port, "--ca-file", str(ca_file))
    assert "no mechanism that can be used here (it offers: X-SECRET-HANDSHAKE)" in said
    assert "SCRAM-SHA-256" in said


def test_a_server_without_encryption() -> None:
    def talk(client: socket.socket) -> None:
        says(client, features(UNUSABLE.replace("X-SECRET-HANDSHAKE", "PLAIN")))
        drain(client)

    with serving(talk) as port:
        said = reason(*CLIENT, port)
    assert "offers no encryption" in said
    assert "--insecure" in said


def test_a_domain_that_the_server_does_not_serve(embedded: Embedded) -> None:
    port = str(embedded.c2s_port)
    said = reason("--jid", "juliet@other.example", "--host", "127.0.0.1", "--port", port)
    assert f"127.0.0.1:{port} ended the stream before the log-in (host-unknown)" in said
    assert "--jid" in said


def test_a_component_with_another_secret(embedded: Embedded) -> None:
    options = ("--component", embedded.component_domain, *COMPONENT[2:])
    said = reason(*options, str(embedded.port), variable="wrong")
    assert f"127.0.0.1:{embedded.port} does not accept our secret" in said
    assert "--secret-env" in said


def test_a_component_that_the_server_does_not_know(embedded: Embedded) -> None:
    said = reason(*COMPONENT, str(embedded.port), variable=embedded.secret)
    assert "before the log-in (host-unknown)" in said
    assert "--component" in said


def test_a_component_at_the_port_of_clients(embedded: Embedded) -> None:
    said = reason(*COMPONENT, str(embedded.c2s_port))
    assert "does not answer as an XMPP server's port for components does" in said
    assert "--port" in said


def test_an_acceptor_on_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = reason("--acceptor", f"127.0.0.1:{port}")
    assert f"Cannot listen on 127.0.0.1:{port}" in said
    assert "--acceptor" in said


def test_a_host_alone_means_its_port_for_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """slixmpp ignores a host without a port."""
    with refused_port() as port:
        monkeypatch.setattr("conformance.drivers.client._PORT", int(port))
        assert f"127.0.0.1:{port} refuses" in reason("--jid", JULIET, "--host", "127.0.0.1")
