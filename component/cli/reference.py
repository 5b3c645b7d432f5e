"""The descriptions of settings as files: agent.toml, and the reference page of the configuration.

`python -m component.cli.reference` prints the page. Its output is docs/reference/configuration.md;
a test compares the two.
"""

import sys
import textwrap
from collections.abc import Mapping
from typing import Final

from component.app.features import tables
from component.cli.frame import ExitCode
from component.config.describe import Key, Table

_TOP = """\
# Configuration

<!-- Made by `python -m component.cli.reference > docs/reference/configuration.md`; edit the
     descriptions in component/config/ instead. -->

`xmpp-agent init` writes a short `agent.toml`, and with `--full` one with every setting; every
command that reads it takes `--config FILE` (or `XMPP_AGENT_CONFIG`). A minimal one:

```toml
[server]
component_domain = "agent.example.com"
component_secret = "${AGENT_SECRET}"
```

- **Environment.** Each key has a variable that overrides the file: `XMPP_AGENT_`, the section, two
  underscores, the key. Lists are written as JSON:
  `XMPP_AGENT_AGENT__ALLOWED_JIDS='["admin@example.com"]'`.
- **`${NAME}`** in a string of the file is the environment variable `NAME`. `${NAME:-default}` uses
  the default when it is missing or empty, `$${` is a plain `${`.
- **`agent.env`** in the directory of `agent.toml` (the same name, ending in `.env`) contains more
  variables; those of the environment override it. `init` stores the secret there, readable by its
  owner only.
- **Mistakes prevent the start.** Each one is a sentence with the file, the line, the key and the
  correction; all of them are shown at once.
- **Secrets** are never logged or printed. Keep them out of the file with `${NAME}`.
- Names that end in `_s` are seconds, names that end in `_bytes` are bytes.
"""


def page() -> str:
    """Return the page as Markdown."""
    parts = [_TOP, *map(_section, tables()), _LATER, _exit_codes()]
    return "\n".join(parts)


def _section(table: Table) -> str:
    title = f"`{table.header}`" if table.name else "Above all sections"
    parts = [f"## {title}\n"]
    if table.description:
        parts.append(f"{table.description}\n")
    if table.like is not None:
        return "\n".join((*parts, f"The keys are those of `[{table.like}]`.")) + "\n"
    parts.append("| key | value | default | what it is |\n|---|---|---|---|")
    parts += [_row(key) for key in table.keys]
    return "\n".join(parts) + "\n"


def _row(key: Key) -> str:
    if key.required:
        default = "needed"
    else:
        default = f"`{key.default}`" if key.default is not None else "not set"
    description = key.description
    if key.example:
        description += f" Example: `{key.example}`."
    cells = (f"`{key.name}`", key.kind.replace('"', "`"), default, description)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


_LATER: Final = """\
## Keys of later releases

Further keys of `[skills]` are accepted, not looked into, and named in one line of the log at start.
"""


def _exit_codes() -> str:
    rows = "\n".join(f"| {code.value} | {code.meaning} |" for code in ExitCode)
    return f"""\
## Exit codes

| code | meaning |
|---|---|
{rows}
"""


_WIDTH = 88
_ONE_OF_SEVERAL = "heavy"

_COMMENT = """\
Configuration of xmpp-agent. A commented key shows its default.

Each key can be overridden by an environment variable, such as XMPP_AGENT_SERVER__HOST.
${NAME} in a string stands for an environment variable, ${NAME:-default} for one that may be
missing, $${ for a plain ${."""


def agent_toml(values: Mapping[str, str]) -> str:
    """Return the text of agent.toml: all keys, with their documentation.

    `values` are the keys to set, from their dotted name to their value as TOML; all others are
    commented out.
    """
    blocks = [_comment(_COMMENT)]
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


if __name__ == "__main__":
    sys.stdout.write(page())
