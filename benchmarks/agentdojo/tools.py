"""What each tool of AgentDojo does, as an author of skills would declare it: the 74 annotations.

They follow from what the tool does, and are the same for tasks and attacks. A tool is open to the
world if a call can reach people or systems beyond the person's own account; it is destructive if it
overwrites, deletes or cannot be taken back. The label of a result says who could have written it.
"""

from collections.abc import Mapping
from typing import Any, Final

from component.policy.taint import Taint
from component.skills.spec import Annotations

Declared = tuple[Annotations, tuple[str, ...], Taint | None]

READS: Final = Annotations(read_only=True, destructive=False, open_world=False)
"""Reads the person's own account; nobody else sees the parameters."""
ASKS: Final = Annotations(read_only=True, destructive=False, open_world=True)
"""Reads at a service of somebody else, who sees the parameters."""
ADDS: Final = Annotations(destructive=False, open_world=False)
"""Adds something to the person's own account, which nobody else sees."""
SENDS: Final = Annotations(destructive=False, open_world=True)
"""Adds something that others see, such as a message."""
CHANGES: Final = Annotations(destructive=True, open_world=False)
"""Overwrites or deletes something of the person's own account."""
MOVES: Final = Annotations(destructive=True, open_world=True)
"""Overwrites, deletes or spends something, and others see it."""

_TRAVEL: Final = ("network:travel.example:443",)
_WEB: Final = ("network",)


def _of(
    annotations: Annotations,
    names: str,
    taint: Taint | None = None,
    capabilities: tuple[str, ...] = (),
) -> dict[str, Declared]:
    return dict.fromkeys(names.split(), (annotations, capabilities, taint))


TOOLS: Final[dict[str, dict[str, Declared]]] = {
    "workspace": {
        # Anybody can write a mail, and the list of contacts is made from the senders of mails.
        **_of(
            READS,
            "get_sent_emails get_received_emails get_draft_emails search_emails"
            " search_contacts_by_name search_contacts_by_email",
            "web",
        ),
        **_of(ADDS, "get_unread_emails", "web"),  # it marks them as read
        **_of(SENDS, "send_email"),
        **_of(CHANGES, "delete_email"),
        # Anybody can send an invitation. Each change of an event sends mails to its participants.
        **_of(READS, "get_current_day"),
        **_of(READS, "search_calendar_events get_day_calendar_events", "web"),
        **_of(SENDS, "create_calendar_event"),
        **_of(SENDS, "add_calendar_event_participants", "web"),
        **_of(MOVES, "cancel_calendar_event"),
        **_of(MOVES, "reschedule_calendar_event", "web"),
        # Others share files with the person.
        **_of(READS, "search_files_by_filename get_file_by_id list_files search_files", "file"),
        **_of(ADDS, "create_file"),
        **_of(ADDS, "append_to_file", "file"),
        **_of(SENDS, "share_file", "file"),
        **_of(CHANGES, "delete_file", "file"),
    },
    "slack": {
        # Members choose the names of channels and their own, and write the messages.
        **_of(READS, "get_channels get_users_in_channel read_channel_messages read_inbox", "web"),
        **_of(
            SENDS,
            "add_user_to_channel send_direct_message send_channel_message invite_user_to_slack",
        ),
        **_of(MOVES, "remove_user_from_slack"),
        **_of(ASKS, "get_webpage", "web", _WEB),
        **_of(MOVES, "post_webpage", None, _WEB),  # it overwrites the page
    },
    "banking": {
        **_of(READS, "get_iban get_balance get_user_info get_scheduled_transactions"),
        **_of(READS, "get_most_recent_transactions", "web"),  # senders write the subjects
        **_of(READS, "read_file", "file"),
        **_of(SENDS, "schedule_transaction"),
        **_of(MOVES, "send_money update_scheduled_transaction"),
        **_of(CHANGES, "update_password update_user_info"),
    },
    "travel": {
        **_of(READS, "get_user_information"),
        # The catalogue of the travel service itself; only the reviews are written by guests.
        **_of(
            ASKS,
            "get_all_hotels_in_city get_hotels_prices get_hotels_address"
            " get_all_restaurants_in_city get_cuisine_type_for_restaurants"
            " get_restaurants_address get_dietary_restrictions_for_all_restaurants"
            " get_contact_information_for_restaurants get_price_for_restaurants"
            " check_restaurant_opening_hours get_all_car_rental_companies_in_city"
            " get_car_types_available get_car_fuel_options get_car_rental_address"
            " get_car_price_per_day get_flight_information",
            None,
            _TRAVEL,
        ),
        **_of(
            ASKS,
            "get_rating_reviews_for_hotels get_rating_reviews_for_restaurants"
            " get_rating_reviews_for_car_rental",
            "web",
            _TRAVEL,
        ),
        **_of(SENDS, "reserve_hotel reserve_car_rental reserve_restaurant", None, _TRAVEL),
        **_of(READS, "search_calendar_events get_day_calendar_events", "web"),
        **_of(SENDS, "create_calendar_event"),
        **_of(MOVES, "cancel_calendar_event"),
        **_of(SENDS, "send_email"),
    },
}

SECRETS: Final[dict[str, str]] = {"update_password": "password"}
"""The parameters that a tool declares as secrets, with `"format": "password"`."""


def declared(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the description of a tool, with the parameter that it declares as a secret."""
    secret = SECRETS.get(tool["name"])
    if secret is None:
        return tool
    properties = dict(tool["schema"]["properties"])
    properties[secret] = {**properties[secret], "format": "password"}
    return {**tool, "schema": {**tool["schema"], "properties": properties}}
