"""The section about stored data."""

from pathlib import Path

from pydantic import Field, SecretStr

from component.settings.kinds import Section


class Storage(Section):
    """Storage of tasks and other data."""

    path: Path = Field(
        default=Path("./data"),
        description="Data directory; created if it does not exist. A relative path is relative to"
        " the directory in which the service is started.",
    )
    postgres: SecretStr = Field(
        default=SecretStr(""),
        examples=["${AGENT_DATABASE}"],
        description="Connection string of a PostgreSQL database, such as "
        "`postgresql://agent:password@db.example.com/agent`: tasks and subscriptions are stored "
        "there instead of in path, and several processes may share it, each with a different "
        "path. It needs the `postgres` extra. Empty means SQLite. It contains a password: keep it "
        "out of this file.",
    )
