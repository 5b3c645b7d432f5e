"""The runner of each kind of skill, imported when the first skill of that kind runs."""

from pathlib import Path
from typing import TYPE_CHECKING

from component.skill_directories.runners import TRUSTED, Makers, Runner
from component.skills.errors import SkillLoadError

if TYPE_CHECKING:
    from component.skill_directories.host_functions import Services


def makers(services: "Services", cache: Path | None = None) -> Makers:
    """Return what makes the runners; `cache` is the directory of compiled WebAssembly."""

    def trusted_python() -> Runner:
        from component.skill_directories.python import TrustedPython  # noqa: PLC0415

        return TrustedPython(services)

    def confined_python() -> Runner:
        from component.skill_directories.confined import ConfinedPython  # noqa: PLC0415

        return ConfinedPython(services)

    def webassembly() -> Runner:
        try:
            from component.skill_directories.webassembly import WebAssembly  # noqa: PLC0415
        except ImportError as error:
            raise SkillLoadError(
                "Skills in WebAssembly need wasmtime: pip install 'xmpp-agent-component[wasm]'."
            ) from error
        return WebAssembly(services, cache)

    def commands() -> Runner:
        from component.skill_directories.command import Commands  # noqa: PLC0415

        return Commands()

    def requests() -> Runner:
        from component.skill_directories.rest import RestRequests  # noqa: PLC0415

        return RestRequests(services)

    return {
        TRUSTED: trusted_python,
        "python": confined_python,
        "wasm": webassembly,
        "process": commands,
        "rest": requests,
    }
