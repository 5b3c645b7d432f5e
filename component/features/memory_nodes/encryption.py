"""Encryption of the contents of memories, for nodes on servers that others operate.

Fernet (AES-128-CBC and HMAC-SHA-256) with a key of the operator. The id of an item, its version and
its times stay readable. The text is bound to the agent, the person and the key of its item, so that
an item cannot replace another one.
"""

from typing import Final

import msgspec

from component.memory.knowledge_lines import Item
from component.memory.store import StoreUnavailableError, Whose
from component.policy.taint import Taint

MEDIA_TYPE: Final = "application/vnd.fluux.encrypted-memory"


class KeyRefusedError(Exception):
    """The key cannot be used; the message says what to do."""


class _Plain(msgspec.Struct, omit_defaults=True, array_like=False, kw_only=True):
    agent: str
    who: str
    key: str
    body: str
    title: str = ""
    topic: str = ""
    tags: tuple[str, ...] = ()
    taint: Taint | None = None


class Cipher:
    """Encrypts with the first key, decrypts with all of them, so that keys can be replaced.

    Args:
        keys: Fernet keys: 32 bytes, URL-safe base64.

    Raises KeyRefusedError: a key is invalid, or the extra `encryption` is not installed.
    """

    def __init__(self, keys: tuple[str, ...]) -> None:
        try:
            # Imported only where memories are encrypted.
            from cryptography.fernet import Fernet, InvalidToken, MultiFernet  # noqa: PLC0415
        except ImportError:
            raise KeyRefusedError(
                "Encryption of memories needs the extra: pip install"
                " 'xmpp-agent-component[encryption]'."
            ) from None
        try:
            self._fernet = MultiFernet([Fernet(key) for key in keys])
        except ValueError:
            raise KeyRefusedError(
                "encryption_keys of [memory] must be 32 bytes each, in URL-safe base64. Make one:"
                " head -c 32 /dev/urandom | base64 | tr +/ -_"
            ) from None
        self._invalid = InvalidToken

    def encrypt(self, whose: Whose, item: Item) -> str:
        """Return the encrypted contents of an item."""
        plain = _Plain(
            agent=whose.agent,
            who=str(whose.who),
            key=item.key,
            body=item.body,
            title=item.title,
            topic=item.topic,
            tags=item.tags,
            taint=item.taint,
        )
        return self._fernet.encrypt(msgspec.json.encode(plain)).decode("ascii")

    def decrypt(self, whose: Whose, item: Item) -> Item:
        """The item whose body is a token, as it was before.

        Raises StoreUnavailableError: it was encrypted with another key, or is another item's.
        """
        try:
            data = self._fernet.decrypt(item.body.strip().encode())
            plain = msgspec.json.decode(data, type=_Plain)
        except (self._invalid, msgspec.MsgspecError) as error:
            raise StoreUnavailableError(
                f"The memory {item.key} of {whose.who} cannot be decrypted: put the key with which"
                " it was encrypted into encryption_keys of [memory]."
            ) from error
        if (plain.agent, plain.who, plain.key) != (whose.agent, str(whose.who), item.key):
            raise StoreUnavailableError(
                f"The memory {item.key} of {whose.who} holds what was encrypted for another one."
                " Delete the item."
            )
        return msgspec.structs.replace(
            item,
            body=plain.body,
            title=plain.title,
            topic=plain.topic,
            tags=plain.tags,
            taint=plain.taint,
        )
