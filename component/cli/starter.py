"""The agent.toml that `xmpp-agent init` writes: what has to be set, and what most admins change."""

from collections.abc import Mapping
from string import Template
from typing import Final

_STARTER: Final = Template("""\
# Configuration of xmpp-agent; a line with "# " before a key is an example.
# `xmpp-agent init --full` writes every setting, docs/reference/configuration.md explains them.

[server]
# Where the XMPP server accepts components. Prosody's default is 5347, Openfire's 5275.
host = ${host}
port = ${port}
# The address of the agent, as the server knows it.
component_domain = ${component_domain}
# The secret that the server knows, from agent.env beside this file or from the environment.
component_secret = ${component_secret}

[agent]
# The name that people see.
name = "Assistant"
# The domains whose users may use the agent.
allowed_domains = ${allowed_domains}
# Only these accounts of them.
# allowed_jids = ${somebody}
# Those who may use the commands for admins in chat.
# admins = ${somebody}
# Who is responsible for the agent, for people to see.
# operator = "Example Ltd"

# The language model. Without this section the agent only executes commands, such as /help.
# [llm]
# provider = "ollama"
# model = "qwen3:8b"

[storage]
# The directory of the database, the memories and the audit log.
path = ${data}

# Skills in directories; an admin approves each one.
# [skills]
# directories = ["./skills"]
""")


def starter_toml(values: Mapping[str, str]) -> str:
    """Return the text; `values` are the keys of `[server]`, `allowed_domains`, `somebody`, a list
    with one account, and `data`, a directory, as TOML.
    """
    return _STARTER.substitute(values)
