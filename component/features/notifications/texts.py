"""The texts of notifications: of one, which a template can shape, and of a message with several."""

from collections.abc import Sequence
from datetime import UTC, datetime, tzinfo
from string import Template
from typing import Final

from component.link.messages.styling import styled
from component.proactive.work import Trigger, Work, title_of
from component.storage.notifications import Notification

_LONGEST: Final = 20_000
"""Characters of one notification."""
_LONGEST_IN_DIGEST: Final = 1_000
_LONGEST_LINE: Final = 200


def notification_text(work: Work, trigger: Trigger, outcome: str, text: str) -> str:
    """The text of a notification: that of the work's template, or the result. Empty if the work has
    no template and no result. For work that was not completed it is the reason, without a template.

    The Markdown of a result becomes message styling (XEP-0393).
    """
    result = styled(text.strip())
    if work.template and outcome == "completed":
        values = {
            "agent": work.agent,
            "first_line": _cut(result.partition("\n")[0], _LONGEST_LINE),
            "name": title_of(trigger),
            "source": trigger.source,
            "text": result,
        }
        return _cut(Template(work.template).safe_substitute(values), _LONGEST)
    return _cut(result, _LONGEST)


def message_text(notifications: Sequence[Notification], dropped: int, zone: tzinfo) -> str:
    """The body of a message: the text of one notification, or a digest of several, with the times
    in the person's zone. `dropped` is the number of notifications that are missing, because
    too many were held.
    """
    if len(notifications) == 1:
        text = notifications[0].text
    else:
        entries = (_entry(one, zone) for one in notifications)
        text = "\n\n".join((f"{len(notifications)} notifications:", *entries))
    if dropped:
        what = "notification was" if dropped == 1 else "notifications were"
        text += f"\n\n{dropped} older {what} dropped, because too many were held."
    return text


def _entry(one: Notification, zone: tzinfo) -> str:
    at = datetime.fromtimestamp(one.created / 1000, UTC).astimezone(zone)
    title = one.title.replace("*", "")
    return f"*{title}* ({at:%Y-%m-%d %H:%M}): {_cut(one.text, _LONGEST_IN_DIGEST)}"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
