"""The section about uploads."""

from pydantic import Field

from component.settings.kinds import Domain, Section


class Uploads(Section):
    """Where files of results are put that do not fit into a stanza."""

    address: Domain | None = Field(
        default=None,
        examples=["upload.example.com"],
        description="Address of the HTTP upload service (XEP-0363). Default: the one that the"
        " server lists, if it has one.",
    )
