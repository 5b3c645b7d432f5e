"""Runs a command confined: `python -I -m component.sandbox.launch PROFILE PARENT -- COMMAND…`.

PARENT is the id of the process that starts it. The launcher confines itself, and then becomes the
command. It ends with 126 and a line on standard error if it cannot confine itself, and with 127 if
it cannot run the command.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

from component.sandbox.confinement import confine
from component.sandbox.profile import ConfinementError, Profile, decode, encode

NOT_CONFINED: Final = 126
NOT_FOUND: Final = 127
_PATH: Final = "/usr/local/bin:/usr/bin:/bin"


def confined_command(profile: Profile, argv: Sequence[str]) -> list[str]:
    """Return the command that runs `argv` confined by a profile.

    The program is looked for in this process's PATH. Raises ConfinementError if there is none.
    """
    found = shutil.which(argv[0])
    if found is None:
        raise ConfinementError(f"there is no program {argv[0]}")
    program = os.path.abspath(found)
    launcher = [sys.executable, "-I", "-m", "component.sandbox.launch"]
    return [*launcher, encode(profile), str(os.getpid()), "--", program, *argv[1:]]


def environment(profile: Profile, work: str) -> dict[str, str]:
    """Return the variables of a confined process: those that its profile names, and the necessary
    ones.
    """
    home = work or "/"
    made = {"PATH": _PATH, "HOME": home, "TMPDIR": home, "LANG": "C.UTF-8"}
    return made | {name: os.environ[name] for name in profile.environment if name in os.environ}


def main(arguments: Sequence[str]) -> NoReturn:
    """Run the command."""
    if len(arguments) < 4 or arguments[2] != "--":
        _fail("usage: python -I -m component.sandbox.launch PROFILE PARENT -- COMMAND…", 2)
    text, parent, _, program, *rest = arguments
    try:
        profile = decode(text)
        done = confine(profile, command=program, parent=int(parent))
    except (ConfinementError, ValueError) as error:
        _fail(str(error), NOT_CONFINED)
    try:
        os.execve(program, [program, *rest], environment(profile, done.work))  # noqa: S606
    except OSError as error:
        _fail(f"{program} cannot be run: {error.strerror}", NOT_FOUND)


def _fail(reason: str, status: int) -> NoReturn:
    os.write(2, f"{reason}\n".encode())
    os._exit(status)


if __name__ == "__main__":
    main(sys.argv[1:])
