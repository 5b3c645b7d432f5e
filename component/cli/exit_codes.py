"""The exit codes of `xmpp-agent`."""

from enum import IntEnum


class ExitCode(IntEnum):
    """The exit codes; 78 is EX_CONFIG of sysexits.h, the others are what shells expect."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    CONFIG = 78

    @property
    def meaning(self) -> str:
        """A phrase for help and documentation."""
        return _MEANINGS[self]


_MEANINGS = {
    ExitCode.OK: "success",
    ExitCode.FAILURE: "the command failed; stderr says why",
    ExitCode.USAGE: "the command line is wrong",
    ExitCode.CONFIG: "the configuration is missing or wrong; stderr names the keys",
}
