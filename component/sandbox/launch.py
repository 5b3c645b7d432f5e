"""Runs something confined: `python -I -m component.sandbox.launch PROFILE PARENT -- COMMAND…` a
command, and without `--` a module of native skills.

PARENT is the id of the process that starts it. The launcher confines itself, and then becomes the
command. It ends with 126 and a line on standard error if it cannot confine itself, and with 127 if
it cannot run the command. The import of a module is code already, so it is confined, too.

For a module, messages come by standard input and go by standard output; what the module prints
goes to standard error.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

from component.sandbox.profile import ConfinementError, Profile

NOT_CONFINED: Final = 126
NOT_FOUND: Final = 127
_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
_STANDARD_INPUT, _STANDARD_OUTPUT, _STANDARD_ERROR = 0, 1, 2


def confined_command(profile: Profile, argv: Sequence[str]) -> list[str]:
    """Return the command that runs `argv` confined by a profile.

    The program is looked for in this process's PATH. Raises ConfinementError if there is none.
    """
    found = shutil.which(argv[0])
    if found is None:
        raise ConfinementError(f"there is no program {argv[0]}")
    return [*_launcher(profile), "--", os.path.abspath(found), *argv[1:]]


def confined_module(profile: Profile, module: str) -> list[str]:
    """Return the command that runs the skills of a module (`.py` file or name) confined.

    It must be started by this process, with pipes and without environment variables.
    """
    return [*_launcher(profile), module]


def _launcher(profile: Profile) -> list[str]:
    launcher = [sys.executable, "-I", "-m", "component.sandbox.launch"]
    return [*launcher, profile.encode(), str(os.getpid())]


def main(arguments: Sequence[str]) -> NoReturn:
    """Run the command, or the calls of the module until standard input ends."""
    match arguments:
        case [text, parent, "--", program, *rest]:
            environment = _confined(text, parent, program)
            try:
                os.execve(program, [program, *rest], environment)  # noqa: S606
            except OSError as error:
                _fail(f"{program} cannot be run: {error.strerror}", NOT_FOUND)
        case [text, parent, module] if module != "--":
            _serve(module, _confined(text, parent))
    _fail("usage: python -I -m component.sandbox.launch PROFILE PARENT -- COMMAND…", 2)


def _confined(text: str, parent: str, program: str = "") -> dict[str, str]:
    """Confine this process; return the variables that its profile names, and necessary ones."""
    # Imported here: it takes a while, and the process that starts this one does not need it.
    from component.sandbox.confinement import confine  # noqa: PLC0415

    try:
        profile = Profile.decode(text)
        home = confine(profile, command=program, parent=int(parent)) or "/"
    except (ConfinementError, ValueError) as error:
        _fail(str(error), NOT_CONFINED)
    made = {"PATH": _PATH, "HOME": home, "TMPDIR": home, "LANG": "C.UTF-8"}
    return made | {name: os.environ[name] for name in profile.environment if name in os.environ}


def _serve(module: str, variables: dict[str, str]) -> NoReturn:
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


def _fail(reason: str, status: int) -> NoReturn:
    os.write(_STANDARD_ERROR, f"{reason}\n".encode())
    os._exit(status)


if __name__ == "__main__":
    main(sys.argv[1:])
