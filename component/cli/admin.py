"""`xmpp-agent status`, `pause` and `resume`: the service itself."""

from component.cli.operator import command_of
from component.features.service_commands.commands import PAUSE, RESUME, STATUS

status = command_of(STATUS, "status", "xmpp-agent status\nxmpp-agent status --json | jq .tasks")
pause = command_of(PAUSE, "pause", "xmpp-agent pause")
resume = command_of(RESUME, "resume", "xmpp-agent resume")
