"""What keeps the kit from logging in, in sentences: what was tried, why it failed, and which option
of the command line changes it.
"""

import errno
import socket
import ssl

from conformance.drivers import DriverError


def no_connection(peer: str, error: BaseException | str | None) -> DriverError:
    """Return the error if no connection to `peer`, HOST:PORT, was made."""
    if isinstance(error, socket.gaierror) or "DNS" in str(error):
        return DriverError(
            f"The host name of {peer} does not resolve: correct --host, or add the name to DNS or"
            " /etc/hosts."
        )
    refuses = getattr(error, "errno", None) == errno.ECONNREFUSED or "refused" in str(error)
    if refuses or "Connect call failed" in str(error):  # asyncio's text for several addresses
        return DriverError(
            f"{peer} refuses connections: start the server, and name the host and the port on"
            " which it listens with --host and --port."
        )
    why = f" ({error})" if error else ""
    return DriverError(
        f"No connection to {peer}{why}: check --host and --port, and that no firewall blocks it."
    )


def tls_failed(peer: str, domain: str, error: BaseException) -> DriverError:
    """Return the error if TLS failed; the certificate has to be one of `domain`."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return DriverError(
            f"The certificate of {peer} is not accepted ({error.verify_message.rstrip('.')}): it"
            f" has to be valid for {domain}, the domain of the account, and signed by an authority"
            " that the system trusts or that --ca-file names. On a test server, --insecure accepts"
            " any."
        )
    return DriverError(
        f"TLS with {peer} failed ({error}): --port has to name the port for clients with STARTTLS,"
        " and the server to support TLS 1.2 or later."
    )


def not_xmpp(peer: str, port_of: str) -> DriverError:
    """Return the error if the peer ended the connection without having opened a stream."""
    return DriverError(
        f"{peer} accepts connections, but does not answer as an XMPP server's port for {port_of}"
        " does: name that port with --port; it must not use TLS from the first byte."
    )


def no_answer(peer: str, seconds: float) -> DriverError:
    """Return the error if nothing came in time."""
    return DriverError(
        f"No log-in at {peer} within {seconds:g} s: check --host and --port, and that no firewall"
        " drops the packets."
    )


def ended(peer: str, condition: str, option: str) -> DriverError:
    """Return the error if the server ended the stream; `option` gives the domain."""
    why = f" ({condition})" if condition else ""
    advice = {
        "host-unknown": f"it does not serve the domain of {option}: correct it, or --host",
        "conflict": f"another client is connected with this address: use another {option}",
        "invalid-namespace": "--port has to name another one of its ports",
    }.get(condition, "its log may say why")
    return DriverError(f"{peer} ended the stream before the log-in{why}: {advice}.")
