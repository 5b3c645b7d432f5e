"""The section about the files that the service serves itself."""

from typing import Any, Final

from pydantic import Field

from component.config.kinds import Count, FilePath, Section, refusal
from component.config.model import Settings
from component.config.sections import Top, table


class SharedFiles(Section):
    """Files that agents give people, and that the server's upload service does not take. The
    listener of [http] serves them if it has a url, each at an address that nobody can guess.
    """

    directory: FilePath | None = Field(default=None, examples=["/srv/agent/files"])
    """Directory of their contents. Default: `shared-files` in the data directory. Several instances
    that share a database need one directory on a shared file system.
    """
    keep_days: Count = Field(default=7, le=3650)
    """Days after which a file is deleted."""
    max_file_bytes: Count = Field(default=20_000_000, le=1_000_000_000)
    """Maximum size of a file in bytes."""
    quota_bytes: Count = 200_000_000
    """Maximum size of all files of one person in bytes. Further files are refused until older ones
    are deleted.
    """
    requests_per_minute: Count = 600
    """Maximum number of requests for files per minute, of everybody together. Further ones are
    answered with 429.
    """
    downloads_total: Count = 64
    """Maximum number of files that are sent at the same time."""


SHARED_FILES: Final = table("shared_files", SharedFiles)
SECTIONS: Final[tuple[Top[Any], ...]] = (SHARED_FILES,)


def check(settings: Settings) -> None:
    """Raise a refusal if files cannot be served."""
    if settings.http.url and settings.http.port is None:
        raise refusal("is missing: http.url is set, but nothing listens", key="http.port")
