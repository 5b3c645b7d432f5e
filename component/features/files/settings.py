"""The section about the files of people."""

from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from component.config.kinds import Count, Seconds, Section, refusal, service_url
from component.config.sections import Top, optional_table


def _beginnings(value: tuple[str, ...]) -> tuple[str, ...]:
    for each in value:
        service_url(each, "https://upload.internal.example.com:5443/upload/")
        if not each or not urlsplit(each).path.endswith("/"):
            raise refusal(f"has {each!r}: write the beginning of a URL, up to a slash")
    return value


class Files(Section):
    """The files that people send to agents, and those that agents keep for them. Agents take files
    without this section, too; with it, they can also write and delete files. See
    docs/how-to/files.md.
    """

    enabled: bool = True
    """Whether the skills `file_write` and `file_delete` are offered."""
    shared: bool = False
    """Whether what agents write is for all people who talk with the agent. Otherwise each person
    has their own files.
    """
    receive: bool = True
    """Whether agents take the files that people send."""
    max_file_bytes: Annotated[Count, Field(le=50_000_000)] = 10_000_000
    """Maximum size of one file in bytes."""
    quota_bytes: Count = 100_000_000
    """Maximum size of all files of a person with an agent, in bytes. When another one is sent, the
    oldest of those that were sent are deleted.
    """
    max_files: Count = Field(default=500, le=10_000)
    """Maximum number of files of a person with an agent."""
    keep_days: Annotated[int, Field(ge=0)] = 90
    """Days after which a file that a person has sent is deleted; 0 to keep it until the person
    deletes it. Files that agents have written are kept.
    """
    timeout_s: Seconds = 30
    """Seconds for fetching one file."""
    downloads: Count = 6
    """Maximum number of files that are fetched and read at a time."""
    downloads_per_person: Count = 2
    """Maximum number of files of one person that are fetched and read at a time."""
    max_image_bytes: Count = 3_750_000
    """Maximum size of an image that a model is shown, in bytes: providers refuse larger ones."""
    upload_urls: Annotated[tuple[str, ...], AfterValidator(_beginnings)] = Field(
        default=(), examples=[["https://upload.internal.example.com:5443/upload/"]]
    )
    """Beginnings of the URLs of upload services in private networks or on unusual ports. The one
    of the agent's own server is found.
    """


FILES: Final = optional_table("files", Files)
SECTIONS: Final[tuple[Top[Any], ...]] = (FILES,)
