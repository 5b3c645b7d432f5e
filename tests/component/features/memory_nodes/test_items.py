"""Memories as payloads: what is written is read again, encrypted or not."""

import base64
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.features.memory_nodes.items import (
    Cipher,
    KeyRefusedError,
    NodeItem,
    item_of,
    payload_of,
)
from component.memory.knowledge_lines import Item
from component.memory.reconciler import digest
from component.memory.store import StoreUnavailableError
from component.memory_directory.layout import SessionKey
from component.policy.taint import TAINTS
from tests import schemas
from tests.component.features.memory_nodes.world import ADDRESS, ANNS
from tests.component.memory.remembering import ANN, BOB
from xep.characters import without_forbidden

KEYS = tuple(base64.urlsafe_b64encode(bytes([n]) * 32).decode() for n in (1, 2))
BOBS = SessionKey("assistant", BOB)

texts = st.text(st.characters(codec="utf-8")).map(without_forbidden)
named = texts.filter(bool)
times = st.datetimes(timezones=st.timezones().map(lambda _: None) | st.none()).map(
    lambda when: when.replace(microsecond=0, year=max(when.year, 1000)).isoformat() + "Z"
)
items = st.builds(
    Item,
    key=named,
    body=texts,
    title=texts,
    topic=texts,
    tags=st.lists(texts, max_size=3).map(tuple),
    version=st.integers(0, 2**40),
    created=times | st.just(""),
    updated=times | st.just(""),
    by=st.just(str(ADDRESS)),
    taint=st.none() | st.sampled_from(TAINTS),
    expires=times | st.just(""),
)


@given(item=items, encrypted=st.booleans())
def test_an_item_is_read_as_it_was_written(item: Item, encrypted: bool) -> None:
    cipher = Cipher(KEYS[:1]) if encrypted else None
    payload = payload_of(item, ADDRESS, ANNS, cipher)
    schemas.check(payload.text) if hasattr(schemas, "check") else None
    read = item_of(NodeItem(item.key, payload.text), ANNS, cipher)
    assert read == item
    assert digest(read) == digest(item)


def test_a_cipher_hides_the_contents_of_a_memory() -> None:
    item = Item(key="pin", body="xyzzy", title="plugh", topic="frotz", tags=("quux",), taint="web")
    payload = payload_of(item, ADDRESS, ANNS, Cipher(KEYS[:1])).text
    for word in ("xyzzy", "plugh", "frotz", "quux", "web'"):
        assert word not in payload


def test_keys_can_be_replaced() -> None:
    item = Item(key="pin", body="1234")
    old = NodeItem("pin", payload_of(item, ADDRESS, ANNS, Cipher(KEYS[:1])).text)
    assert item_of(old, ANNS, Cipher((KEYS[1], KEYS[0]))).body == "1234"
    for cipher in (Cipher(KEYS[1:]), None):
        with pytest.raises(StoreUnavailableError, match="encryption_keys"):
            item_of(old, ANNS, cipher)


@pytest.mark.parametrize(
    ("whose", "key"), [(BOBS, "pin"), (SessionKey("helper", ANN), "pin"), (ANNS, "other")]
)
def test_an_encrypted_item_cannot_be_passed_off_as_another(whose: Any, key: str) -> None:
    cipher = Cipher(KEYS[:1])
    payload = payload_of(Item(key="pin", body="1234"), ADDRESS, ANNS, cipher).text
    with pytest.raises(StoreUnavailableError, match="another one"):
        item_of(NodeItem(key, payload), whose, cipher)


def test_an_unencrypted_item_needs_no_key() -> None:
    item = msgspec.structs.replace(Item(key="pin", body="1234"))
    plain = NodeItem("pin", payload_of(item, ADDRESS, ANNS).text)
    assert item_of(plain, ANNS, Cipher(KEYS[:1])).body == "1234"


def test_a_wrong_key_is_explained() -> None:
    with pytest.raises(KeyRefusedError, match="32 bytes"):
        Cipher(("short",))
