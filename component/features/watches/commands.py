"""The command about watches: one's own, and for admins everybody's and those in the settings."""

from collections.abc import Sequence
from functools import partial
from typing import Literal

import msgspec

from component.commands import AnyCommand, Asking, CommandError, CommandResult, Outline
from component.features.watches.service import WatchService, WatchSheet


class WatchParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The action, and the name of the watch.

    Args:
        action: list, show, pause, resume or remove.
        name: Name of the watch; list needs none.
    """

    action: Literal["list", "show", "pause", "resume", "remove"] = "list"
    name: str = ""


WATCH = Outline(
    name="watch",
    title="Watches",
    about="list, show, pause, resume or remove what I watch for you",
    params=WatchParams,
    group="contact",
)


def watch_commands(watches: WatchService) -> tuple[AnyCommand, ...]:
    """Return the command about watches."""
    return (WATCH.done_by(partial(_watch, watches)),)


async def _watch(watches: WatchService, asking: Asking, params: WatchParams) -> CommandResult:
    sheets = await _visible(watches, asking)
    if params.action == "list" and not params.name:
        lines = [_line(sheet) for sheet in sheets]
        none = "I watch nothing for you. Ask me, for example: tell me whenever …"
        return CommandResult("\n".join(lines) or none, sheets)
    sheet = _found(sheets, params.name, asking)
    if params.action in ("list", "show"):
        return CommandResult(_described(sheet), sheet)
    if params.action == "remove" and not sheet.owner:
        raise CommandError(
            f"{sheet.name} is in the settings: remove its [[watch]] there, or pause it.", "name"
        )
    change, done, state = {
        "pause": (watches.pause, "is paused", "paused"),
        "resume": (watches.resume, "is active again", "active"),
        "remove": (watches.remove, "is removed", "removed"),
    }[params.action]
    if not await change(sheet.id):
        raise CommandError(f"There is no watch {params.name[:80]!r} any more.", "name")
    changed = msgspec.structs.replace(sheet, state=state)
    return CommandResult(f"The watch {sheet.name} {done}.", changed)


async def _visible(watches: WatchService, asking: Asking) -> Sequence[WatchSheet]:
    if asking.admin:
        return await watches.list(None)
    if asking.principal is None:
        raise CommandError("This works only over XMPP.")
    return await watches.list(str(asking.principal))


def _found(sheets: Sequence[WatchSheet], name: str, asking: Asking) -> WatchSheet:
    """Return the watch that a name means: by its id, else one's own by name, else the only one."""
    if not name:
        raise CommandError("Say which one: /watch pause NAME. /watch lists them.", "name")
    own = str(asking.principal) if asking.principal is not None else ""
    found = [sheet for sheet in sheets if sheet.id == name]
    found = found or [sheet for sheet in sheets if (sheet.owner, sheet.name) == (own, name)]
    found = found or [sheet for sheet in sheets if sheet.name == name]
    if not found:
        raise CommandError(f"There is no watch {name[:80]!r}. /watch lists them.", "name")
    if len(found) > 1:
        ids = ", ".join(sheet.id for sheet in found)
        raise CommandError(f"There are several: {ids}. Give one of these.", "name")
    return found[0]


def _line(sheet: WatchSheet) -> str:
    is_node = sheet.node not in ("presence", "room") or "@" not in sheet.service
    what = f"node {sheet.node}" if is_node else sheet.node
    state = sheet.state
    if state == "active" and sheet.subscription not in ("", "live"):
        state = sheet.subscription
    return f"- {sheet.id if sheet.owner == '' else sheet.name} ({state}): {what} of {sheet.service}"


def _described(sheet: WatchSheet) -> str:
    lines = [f"{sheet.name} is {sheet.state}.", f"It watches {sheet.node} of {sheet.service}."]
    if sheet.subscription:
        lines.append(f"The subscription is {sheet.subscription}.")
    if sheet.reason:
        lines.append(f"Reason: {sheet.reason}")
    if sheet.filter:
        lines.append(f"Only if {sheet.filter}.")
    lines += [f"Then: {sheet.work}", f"At most {sheet.rate}."]
    lines.append(
        f"{sheet.received} events, {sheet.started} started work, {sheet.thinned} were thinned,"
        f" {sheet.refused} were refused, {sheet.cut} were cut as loops, {sheet.pending} wait."
    )
    return "\n".join(lines)
