"""A temporary certificate for the embedded server."""

import ssl
from dataclasses import dataclass

import trustme


@dataclass(frozen=True, slots=True)
class Certificate:
    """The TLS settings of a server, and the certificate with which clients verify it.

    Attributes:
        context: the server side's TLS settings, with certificate and key.
        ca_pem: the certificate of the authority that signed it, in PEM, for clients to trust.
    """

    context: ssl.SSLContext
    ca_pem: bytes

    @classmethod
    def make(cls, *names: str) -> "Certificate":
        """Create an authority, and a certificate for ``names``: host names and IP addresses."""
        authority = trustme.CA()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        authority.issue_cert(*names).configure_cert(context)
        return cls(context, authority.cert_pem.bytes())
