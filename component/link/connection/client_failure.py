"""Why a client could not log in, as a sentence for the admin."""

from component.link.connection.failure import ConnectionFailed, FailureCode
from component.link.connection.options import ConnectionOptions
from xep.client_stream import LoginFailed


def login_impossible() -> ConnectionFailed:
    """Return the failure for a missing package that computes SCRAM."""
    return ConnectionFailed(
        "login",
        'server.mode is "client", which needs the `client` extra: install it with '
        "pip install 'xmpp-agent-component[client]'.",
    )


def login_failed(options: ConnectionOptions, failed: LoginFailed) -> ConnectionFailed:
    """Return the failure for an event of the stream."""
    account, server = options.address, f"the server at {options.host}:{options.port}"
    said = f" and says {failed.text!r}" if failed.text else ""
    code: FailureCode = "login"
    match failed.fault:
        case "no-tls":
            code = "tls"
            sentence = (
                f"{_begin(server)} offers no STARTTLS, and the password is not sent without TLS: "
                "enable TLS for clients on the server, or use its port with direct TLS and tls = "
                "true."
            )
        case "tls":
            code = "tls"
            sentence = (
                f"{_begin(server)} offers STARTTLS but refuses it: check the certificate that the "
                "server is configured with; its log may say more."
            )
        case "no-mechanism":
            offered = failed.text or "none"
            sentence = (
                f"{_begin(server)} offers no supported login mechanism (it offers:"
                f" {offered}): enable SCRAM-SHA-256 or SCRAM-SHA-1 on the server."
            )
        case "unproved":
            code = "not-authorized"
            sentence = (
                f"The login of {account} was aborted, because {failed.text}: check that"
                f" {server} is the right server and that nobody intercepts the connection."
            )
        case "no-bind":
            sentence = (
                f"{_begin(server)} does not offer resource binding: it is not a server for clients."
            )
        case "bind":
            sentence = (
                f"{_begin(server)} refuses {account} a resource"
                f" ({failed.condition}){said}: close other sessions of the account, or raise the"
                " server's session limit."
            )
        case "sasl":
            code, sentence = _refused(options, server, failed.condition, said)
    return ConnectionFailed(code, sentence)


def _refused(
    options: ConnectionOptions, server: str, condition: str, said: str
) -> tuple[FailureCode, str]:
    account = options.address
    if condition in ("not-authorized", "invalid-authzid"):
        return "not-authorized", (
            f"{_begin(server)} refused the login of {account}{said}: there is no such account, or "
            "its password differs from server.password."
        )
    if condition == "account-disabled":
        return "not-authorized", f"{_begin(server)} has disabled the account {account}{said}."
    if condition == "credentials-expired":
        return "not-authorized", (
            f"The password of {account} has expired{said}: set a new one on the server and in "
            "server.password."
        )
    if condition == "temporary-auth-failure":
        return "login", f"{_begin(server)} cannot check passwords now{said}; the agent tries again."
    return "login", f"{_begin(server)} refused the login of {account} ({condition}){said}."


def _begin(text: str) -> str:
    return text[0].upper() + text[1:]
