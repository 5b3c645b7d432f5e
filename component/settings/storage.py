"""The section about what the agent keeps, and where."""

from pathlib import Path

from pydantic import Field, SecretStr

from component.settings.kinds import Section


class Storage(Section):
    """What the agent keeps, and where."""

    path: Path = Field(
        default=Path("./data"),
        description="Data directory; made if it is missing. A relative path counts from the "
        "directory in which the service is started.",
    )
    postgres: SecretStr = Field(
        default=SecretStr(""),
        examples=["${AGENT_DATABASE}"],
        description="Connection string of a PostgreSQL database, such as "
        "`postgresql://agent:password@db.example.com/agent`: tasks and subscriptions are kept "
        "there instead of in path, and several processes may share it, each with a path of its "
        "own. It needs the `postgres` extra. Empty means SQLite. It holds a password: keep it out "
        "of this file.",
    )
