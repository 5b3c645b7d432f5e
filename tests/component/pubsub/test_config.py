"""Configuration of nodes as data forms."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.pubsub.config import (
    DEFAULT,
    MOST_ITEMS,
    MOST_PAYLOAD_BYTES,
    AccessModel,
    NodeConfig,
    PublishModel,
    SendLast,
    config_form,
    configured,
    preconditions,
)
from xep.data_forms import Field, Form, form_type_field
from xep.pubsub import PUBLISH_OPTIONS
from xep.stanza_error import StanzaError

texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=50)
configs = st.builds(
    NodeConfig,
    title=texts,
    description=texts,
    language=st.sampled_from(["", "de", "en-GB"]),
    type=texts,
    access_model=st.sampled_from(get_args(AccessModel)),
    publish_model=st.sampled_from(get_args(PublishModel)),
    max_items=st.integers(1, MOST_ITEMS),
    persist_items=st.booleans(),
    item_expire_s=st.none() | st.integers(1, 1_000_000),
    max_payload_bytes=st.integers(1, MOST_PAYLOAD_BYTES),
    send_last_published_item=st.sampled_from(get_args(SendLast)),
    notify_config=st.booleans(),
    notify_delete=st.booleans(),
    notify_retract=st.booleans(),
    deliver_notifications=st.booleans(),
    deliver_payloads=st.booleans(),
    notification_type=st.sampled_from(["headline", "normal"]),
)


def submitted(form: Form) -> Form:
    """What a client sends back that changes nothing in the form."""
    return Form(type="submit", fields=form.fields)


@given(configs, configs)
def test_a_form_that_is_sent_back_gives_the_configuration(
    config: NodeConfig, other: NodeConfig
) -> None:
    assert configured(other, submitted(config_form(config))) == config


@given(configs, st.sampled_from(["pubsub#max_items", "pubsub#access_model", "colour"]), texts)
def test_any_value_is_read_or_refused(config: NodeConfig, var: str, value: str) -> None:
    form = Form(type="submit", fields=(Field(var=var, values=(value,)),))
    try:
        after = configured(config, form)
    except StanzaError as error:
        condition = error.condition
    else:
        condition = "not-acceptable"
        assert configured(DEFAULT, submitted(config_form(after))) == after
    assert condition == "not-acceptable"


def test_fields_that_are_left_out_keep_their_value() -> None:
    assert configured(NodeConfig(title="x", max_items=3), Form(type="submit")) == NodeConfig(
        title="x", max_items=3
    )


@pytest.mark.parametrize("value", ["red", ""])
def test_a_precondition_that_cannot_be_met_is_a_conflict(value: str) -> None:
    fields = (
        form_type_field(PUBLISH_OPTIONS),
        Field(var="pubsub#access_model", values=(value,)),
    )
    with pytest.raises(StanzaError) as caught:
        preconditions(Form(type="submit", fields=fields))
    assert caught.value.condition == "conflict"


def test_preconditions_are_settings() -> None:
    fields = (
        form_type_field(PUBLISH_OPTIONS),
        Field(var="pubsub#access_model", values=("open",)),
        Field(var="pubsub#max_items", values=("max",)),
    )
    wanted = preconditions(Form(type="submit", fields=fields))
    assert wanted == {"access_model": "open", "max_items": MOST_ITEMS}
    assert preconditions(None) == {}
    assert DEFAULT.access_model == "presence"
