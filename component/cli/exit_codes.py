"""What the exit code of `xmpp-agent` says."""

from enum import IntEnum


class ExitCode(IntEnum):
    """The exit codes; 78 is EX_CONFIG of sysexits.h, the others are what shells expect."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    CONFIG = 78

    @property
    def meaning(self) -> str:
        """One phrase for help and documentation."""
        return _MEANINGS[self]


_MEANINGS = {
    ExitCode.OK: "all went well",
    ExitCode.FAILURE: "the command could not do its work; stderr says why",
    ExitCode.USAGE: "the command line is wrong",
    ExitCode.CONFIG: "the configuration is missing or wrong; stderr names the keys",
}
