"""The commented agent.toml that `init` writes, made from the settings' own documentation."""

import textwrap
from collections.abc import Mapping

from component.app.settings import tables
from component.settings.describe import Key, Table

_WIDTH = 88
_ONE_OF_SEVERAL = "heavy"

_TOP = """\
Configuration of xmpp-agent. A commented key shows its default.

Each key can be overridden by an environment variable, such as XMPP_AGENT_SERVER__HOST.
${NAME} in a string stands for an environment variable, ${NAME:-default} for one that may be
missing, $${ for a plain ${."""


def agent_toml(values: Mapping[str, str]) -> str:
    """Return the text of agent.toml: all keys, with their documentation.

    `values` are the keys to set, from their dotted name to their value as TOML; all others are
    commented out.
    """
    blocks = [_comment(_TOP)]
    blocks += [_table(table, values) for table in tables()]
    return "\n\n".join(blocks) + "\n"


def _table(table: Table, values: Mapping[str, str]) -> str:
    parts: list[str] = []
    if table.name:
        # A table that is not commented out would create an entry.
        mark = "# " if table.repeated or table.optional else ""
        # Where several names are possible, one is used: so the line is valid when it is
        # uncommented.
        header = table.header.replace("…", _ONE_OF_SEVERAL)
        parts.append(f"{_comment(table.description)}\n{mark}{header}")
    if table.like is not None:
        parts.append(f"# with the keys of [{table.like}]")
    parts += [_key(key, f"{table.name}.{key.name}".lstrip("."), values) for key in table.keys]
    return "\n\n".join(parts)


def _key(key: Key, name: str, values: Mapping[str, str]) -> str:
    if (value := values.get(name)) is not None:
        line = f"{key.name} = {value}"
    elif key.default is not None:
        line = f"# {key.name} = {key.default}"
    else:
        line = f"# {key.name} = {key.example}  # not set; this is an example"
    return f"{_comment(key.description)}\n{line}"


def _comment(text: str) -> str:
    paragraphs = (textwrap.wrap(part, _WIDTH - 2) for part in text.split("\n\n"))
    return "\n#\n".join("\n".join(f"# {line}" for line in lines) for lines in paragraphs)
