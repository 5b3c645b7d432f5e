"""`xmpp-agent`: the entry point.

`xmpp-agent run`, in the forms of its help, starts the service at once: click takes a thirtieth of
the time to start, and stays in memory. Everything else, and what is wrong, goes to the group of
commands.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

_COMPLETION = "_XMPP_AGENT_COMPLETE"
"""The variable with which a shell asks click for completions."""


def main() -> None:
    """Run the command line; end the process with one of the documented exit codes.

    Files are created for the user alone: they contain conversations, memories and secrets.
    """
    os.umask(0o077)
    config = None if _COMPLETION in os.environ else _config_to_run(sys.argv[1:])
    if config is not None:
        sys.exit(_run(config))
    from component.cli.group import group  # noqa: PLC0415

    group(prog_name="xmpp-agent")


def _config_to_run(arguments: Sequence[str]) -> Path | None:
    """Return the configuration to run; None if the arguments have another form."""
    match arguments:
        case ["run"]:
            return Path(os.environ.get("XMPP_AGENT_CONFIG") or "agent.toml")
        case ["run", "--config" | "-c", file] if file and not file.startswith("-"):
            return Path(file)
    return None


def _run(config: Path) -> int:
    """Run the service; return the exit code."""
    from component.app.process import StartError, run_service  # noqa: PLC0415

    try:
        return 0 if run_service(config) else 1
    except StartError as error:
        from component.cli.frame import fault_of  # noqa: PLC0415

        fault = fault_of(error)
        fault.show()
        return fault.exit_code
    except KeyboardInterrupt:
        from component.cli.frame import Interrupted  # noqa: PLC0415

        interrupted = Interrupted()
        interrupted.show()
        return interrupted.exit_code
