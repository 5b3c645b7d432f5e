"""The certificate of the embedded server, made on the spot and thrown away with it."""

import ssl
from dataclasses import dataclass

import trustme


@dataclass(frozen=True, slots=True)
class Certificate:
    """What a server needs for STARTTLS, and what a client needs to verify it.

    Attributes:
        context: the server side's TLS settings, with certificate and key.
        ca_pem: the certificate of the authority that signed it, in PEM, for clients to trust.
    """

    context: ssl.SSLContext
    ca_pem: bytes

    @classmethod
    def make(cls, *names: str) -> "Certificate":
        """A new authority and a certificate of it for ``names``: host names and IP addresses."""
        authority = trustme.CA()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        authority.issue_cert(*names).configure_cert(context)
        return cls(context, authority.cert_pem.bytes())
