"""The configurations that Debian's packages ship, and how the tests change them.

The tests run the packaged files: modules, limits, encryption and all. A change is one that the
test needs (ports, paths, names), or one that says why; what a change replaces has to be in the file
exactly once, so that a newer package cannot lose it silently.
"""

import hashlib
import subprocess
import sys
from pathlib import Path

from tests.servers.errors import ServerError

# Written by postinst to /etc/ejabberd, where only ejabberd may read it: this is what it copies.
EJABBERD = Path("/usr/share/ejabberd/ejabberd.yml.example")
PROSODY = Path("/etc/prosody/prosody.cfg.lua")
COPIES = Path(sys.prefix) / "debian"
"""Where `tests/tools/debian.sh` puts a copy of what only root may read."""


def read(file: Path, package: str) -> str:
    """Return a configuration that a package brought along.

    Raises ServerError if it is missing, unreadable, or no longer what the package has installed.
    """
    for place in (file, COPIES / file.name):
        try:
            data = place.read_bytes()
            break
        except (FileNotFoundError, PermissionError):
            continue
    else:
        raise ServerError(
            f"{file} of Debian's package {package} is missing or cannot be read: run 'make servers'"
        )
    packaged = _packaged_digest(file, package)
    if packaged is not None and packaged != hashlib.md5(data, usedforsecurity=False).hexdigest():
        raise ServerError(
            f"{file} is not the one that Debian's package {package} ships, which these tests run:"
            " restore it (apt-get install --reinstall -o Dpkg::Options::=--force-confask"
            f" {package})"
        )
    return data.decode()


def change(text: str, *changes: tuple[str, str]) -> str:
    """Replace each first text by its second one.

    Raises ServerError unless the first one is there exactly once.
    """
    for old, new in changes:
        if text.count(old) != 1:
            raise ServerError(
                f"Debian's configuration has {old!r} {text.count(old)} times and not once:"
                " adapt what the tests change in it"
            )
        text = text.replace(old, new)
    return text


def between(text: str, begin: str, end: str) -> str:
    """Return the part of a text from `begin` up to the next `end`, which stays out."""
    start = text.index(begin)
    return text[start : text.index(end, start)]


def _packaged_digest(file: Path, package: str) -> str | None:
    """The MD5 by which dpkg knows a configuration file; None for files it keeps no digest of."""
    query = ["dpkg-query", "-W", "-f=${Conffiles}", package]
    known = subprocess.run(query, capture_output=True, text=True, check=False).stdout
    for line in known.splitlines():
        name, _, digest = line.strip().partition(" ")
        if name == str(file):
            return digest.split()[0]
    return None
