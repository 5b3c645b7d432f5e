"""The options of the kit's command line."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class CommandLineOptions:
    """The options of the command line."""

    words: tuple[str, ...]
    self_test: bool
    listing: bool
    jid: str | None
    password_env: str
    second_jid: str | None
    second_password_env: str | None
    component: str | None
    acceptor: str | None
    secret_env: str
    host: str | None
    port: int | None
    insecure: bool
    ca_file: str | None
    users: str | None
    refused: str | None
    peer: str | None
    profile: tuple[str, ...]
    skills: Path | None
    baseline: Path | None
    spec_version: str
    strict: bool
    hostile: bool
    timeout: float
    html: Path | None
    junit: Path | None
    json: Path | None
    script: Path | None
