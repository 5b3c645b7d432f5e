"""The confined child that runs native skills: `python -I -m component.sandbox.child PROFILE PARENT
MODULE`.

It confines itself first, so that the import of the module, which is code already, is confined.
Messages come by standard input and go by standard output; what the module prints goes to standard
error.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NoReturn

from component.sandbox.confinement import confine
from component.sandbox.launch import NOT_CONFINED, environment
from component.sandbox.profile import ConfinementError, decode

if TYPE_CHECKING:
    from component.sandbox.profile import Profile

_STANDARD_INPUT, _STANDARD_OUTPUT, _STANDARD_ERROR = 0, 1, 2
MESSAGE_BYTES: Final = 64 << 20
"""The maximum size of a message of the service."""


def child_command(profile: Profile, module: str) -> list[str]:
    """Return the command that runs the skills of a module (`.py` file or name) confined.

    It must be started by this process, with pipes and without environment variables.
    """
    from component.sandbox.profile import encode  # noqa: PLC0415 - the child needs no encoder

    launcher = [sys.executable, "-I", "-m", "component.sandbox.child"]
    return [*launcher, encode(profile), str(os.getpid()), module]


def main(arguments: Sequence[str]) -> NoReturn:
    """Run calls until standard input ends."""
    text, parent, module = arguments
    try:
        profile = decode(text)
        done = confine(profile, parent=int(parent))
    except (ConfinementError, ValueError) as error:
        os.write(_STANDARD_ERROR, f"{error}\n".encode())
        os._exit(NOT_CONFINED)
    variables = environment(profile, done.work)
    os.environ.clear()
    os.environ.update(variables)
    incoming, outgoing = os.dup(_STANDARD_INPUT), os.dup(_STANDARD_OUTPUT)
    os.dup2(os.open("/dev/null", os.O_RDONLY), _STANDARD_INPUT)
    os.dup2(_STANDARD_ERROR, _STANDARD_OUTPUT)
    sys.dont_write_bytecode = True

    from component.sandbox.guest import Guest  # noqa: PLC0415 - loads skills, after confinement

    Guest(incoming, outgoing, module).run()
    sys.stderr.flush()
    os._exit(0)  # whatever the module has left running ends too


if __name__ == "__main__":
    main(sys.argv[1:])
