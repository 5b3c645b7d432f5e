"""Whether the journal of systemd reads what is written."""

import os
from typing import TextIO


def is_journal(stream: TextIO) -> bool:
    """Whether the journal of systemd reads a stream (systemd.exec(5), `JOURNAL_STREAM`). A line may
    begin with its priority then (sd-daemon(3)).
    """
    try:
        found = os.fstat(stream.fileno())
    except (AttributeError, OSError, ValueError):
        return False  # it is no file
    return os.environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"
