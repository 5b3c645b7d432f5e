"""How a node is configured, as a struct and as a data form (XEP-0060 §8.2, §16.4.3)."""

from collections.abc import Callable
from typing import Any, Final, Literal, TypeAlias, get_args

import msgspec

from component.pubsub import faults
from xep import pubsub_errors
from xep.binding import ContentError
from xep.data_forms import FORM_TYPE, Field, FieldType, Form, Option, form_type_field
from xep.pubsub import META_DATA, NODE_CONFIG, PUBLISH_OPTIONS
from xep.stanza_error import StanzaError

AccessModel: TypeAlias = Literal["authorize", "open", "presence", "whitelist"]
"""Who may subscribe and retrieve items (XEP-0060 §4.5)."""
PublishModel: TypeAlias = Literal["open", "publishers", "subscribers"]
"""Who may publish, beside owners and publishers."""
SendLast: TypeAlias = Literal["never", "on_sub", "on_sub_and_presence"]

MOST_ITEMS: Final = 10_000
"""The value of ``max`` as the number of items of a node."""
MOST_BYTES: Final = 64 * 1024 * 1024
"""The size of all items of a node in bytes, unless its configuration says otherwise."""
MOST_PAYLOAD_BYTES: Final = 131_072
"""The largest payload that a node can be configured for."""
_LONGEST_TEXT: Final = 1_000
_LONGEST_EXPIRY_S: Final = 10 * 365 * 86_400
_PREFIX: Final = "pubsub#"


class NodeConfig(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The configuration of a node; the defaults are those of a PEP service (XEP-0163 §5).

    Attributes:
        type: the namespace of its payloads; others are refused. Empty accepts every payload.
        max_items: how many items are kept; the oldest are deleted.
        max_bytes: the size of all items together, in bytes; the oldest are deleted. No form has it.
        refuses_when_full: whether an item for which there is no room is refused, and no other is
            deleted. No form has it.
        item_expire_s: seconds after which an item is deleted; None keeps it.
        max_payload_bytes: the largest payload, in bytes of UTF-8.
        notes_retractions: whether it is stored which items others than the service have deleted,
            until the service has taken note of it. No form has it.
    """

    title: str = ""
    description: str = ""
    language: str = ""
    type: str = ""
    access_model: AccessModel = "presence"
    publish_model: PublishModel = "publishers"
    max_items: int = 1
    max_bytes: int = MOST_BYTES
    refuses_when_full: bool = False
    persist_items: bool = True
    item_expire_s: int | None = None
    max_payload_bytes: int = 65_536
    send_last_published_item: SendLast = "on_sub_and_presence"
    notify_config: bool = False
    notify_delete: bool = True
    notify_retract: bool = True
    deliver_notifications: bool = True
    deliver_payloads: bool = True
    notification_type: Literal["headline", "normal"] = "headline"
    notes_retractions: bool = False


DEFAULT: Final = NodeConfig()


class _Setting(msgspec.Struct, frozen=True):
    """One field of the form: how it is read and written."""

    name: str
    label: str
    type_: FieldType
    read: Callable[[Field], Any]
    choices: tuple[str, ...] = ()

    def field(self, value: Any, *, with_choices: bool) -> Field:
        """The field of the form with this value."""
        text = "max" if value is None else str(int(value) if isinstance(value, bool) else value)
        options = tuple(Option(value=each) for each in self.choices) if with_choices else ()
        return Field(
            var=_PREFIX + self.var,
            type=self.type_,
            label=self.label,
            values=(text,),
            options=options,
        )

    @property
    def var(self) -> str:
        """The name of the field without its prefix."""
        return _VARS.get(self.name, self.name)


_VARS: Final = {"item_expire_s": "item_expire", "max_payload_bytes": "max_payload_size"}


def _read_text(field: Field) -> str:
    text = field.read(str) or ""
    if len(text) > _LONGEST_TEXT:
        raise ValueError(f"longer than {_LONGEST_TEXT} characters")
    return text


def _text(name: str, label: str, type_: FieldType = "text-single") -> _Setting:
    return _Setting(name, label, type_, _read_text)


def _flag(name: str, label: str) -> _Setting:
    def read(field: Field) -> bool:
        value = field.read(bool)
        if value is None:
            raise ValueError("expected true or false")
        return value

    return _Setting(name, label, "boolean", read)


def _choice(name: str, label: str, choices: tuple[str, ...]) -> _Setting:
    def read(field: Field) -> str:
        value = field.read(str)
        if value not in choices:
            raise ValueError(f"expected one of {', '.join(choices)}")
        return value

    return _Setting(name, label, "list-single", read, choices)


def _number(name: str, label: str, most: int, on_max: int | None) -> _Setting:
    def read(field: Field) -> int | None:
        if field.read(str) == "max":
            return on_max
        value = field.read(int)
        if value is None or value < 1:
            raise ValueError("expected a number of at least 1")
        if value > most:
            raise ValueError(f"expected a number of at most {most}")
        return value

    return _Setting(name, label, "text-single", read)


_SETTINGS: Final = (
    _text("title", "Name of the node"),
    _text("description", "What the node is about"),
    _text("language", "Language of the items", "list-single"),
    _text("type", "Namespace of the payloads"),
    _choice("access_model", "Who may read", get_args(AccessModel)),
    _choice("publish_model", "Who may publish", get_args(PublishModel)),
    _number("max_items", "Number of items kept", MOST_ITEMS, MOST_ITEMS),
    _flag("persist_items", "Keep items"),
    _number("item_expire_s", "Seconds after which items are deleted", _LONGEST_EXPIRY_S, None),
    _number(
        "max_payload_bytes", "Largest payload in bytes", MOST_PAYLOAD_BYTES, MOST_PAYLOAD_BYTES
    ),
    _choice("send_last_published_item", "When the last item is sent", get_args(SendLast)),
    _flag("notify_config", "Notify of changed configuration"),
    _flag("notify_delete", "Notify of a deleted node"),
    _flag("notify_retract", "Notify of deleted items"),
    _flag("deliver_notifications", "Notify of items"),
    _flag("deliver_payloads", "Send payloads"),
    _choice("notification_type", "Type of the messages", ("headline", "normal")),
)
_BY_VAR: Final = {setting.var: setting for setting in _SETTINGS}
_META: Final = ("title", "description", "language", "type", "access_model", "max_items")


def config_form(config: NodeConfig, *, of_type: Literal["form", "result"] = "form") -> Form:
    """The configuration as a form to fill in, or as the data that a notification carries."""
    fields = [
        each.field(getattr(config, each.name), with_choices=of_type == "form") for each in _SETTINGS
    ]
    return Form(type=of_type, fields=(form_type_field(NODE_CONFIG), *fields))


def meta_data_of(config: NodeConfig, extra: tuple[Field, ...] = ()) -> Form:
    """What disco#info says about a node (XEP-0060 §5.4)."""
    fields = [
        each.field(getattr(config, each.name), with_choices=False)
        for each in _SETTINGS
        if each.var in _META
    ]
    return Form(type="result", fields=(form_type_field(META_DATA), *fields, *extra))


def configured(config: NodeConfig, form: Form | None) -> NodeConfig:
    """The configuration after a form was submitted; fields that it leaves out keep their value.
    Raises StanzaError: ``not-acceptable`` for a field that is unknown or has a wrong value
    (§8.2.5.2), with `unsupported-access-model` for an access model that there is not (§8.1.3).
    """
    if form is None:
        return config
    if form.type != "submit":
        raise StanzaError("bad-request", "the form has not been submitted")
    if form.form_type not in (None, NODE_CONFIG):
        raise StanzaError("not-acceptable", f"expected a form of type {NODE_CONFIG}")
    return msgspec.structs.replace(config, **_values(form))


def preconditions(form: Form | None) -> dict[str, Any]:
    """The settings that publish options require, by the name of their field in `NodeConfig`. Raises
    StanzaError: ``conflict`` with `precondition-not-met` for a field that is unknown or has a wrong
    value, which no node fulfils (XEP-0060 §7.1.5); ``bad-request`` for another form.
    """
    if form is None:
        return {}
    if form.type != "submit" or form.form_type not in (None, PUBLISH_OPTIONS):
        raise StanzaError("bad-request", f"expected a submitted form of type {PUBLISH_OPTIONS}")
    try:
        return _values(form)
    except StanzaError as error:
        raise faults.precondition_not_met(error.text) from error


def _values(form: Form) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in form.fields:
        if field.var is None or field.var == FORM_TYPE:
            continue
        setting = _BY_VAR.get(field.var.removeprefix(_PREFIX))
        if setting is None or not field.var.startswith(_PREFIX):
            raise StanzaError("not-acceptable", f"{field.var}: there is no such option here")
        try:
            found[setting.name] = setting.read(field)
        except (ContentError, ValueError) as error:
            unknown_model = setting.name == "access_model"
            raise faults.fault(
                "not-acceptable",
                pubsub_errors.UnsupportedAccessModel() if unknown_model else None,
                f"{field.var}: {error}",
            ) from error
    return found
