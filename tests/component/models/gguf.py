"""Writes the head of a GGUF file, for tests that need another one than the real one."""

import struct


def string(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack("<Q", len(encoded)) + encoded


def key(name: str, value: int | str | list[int]) -> bytes:
    if isinstance(value, str):
        return string(name) + struct.pack("<I", 8) + string(value)
    if isinstance(value, list):
        packed = b"".join(struct.pack("<I", item) for item in value)
        return string(name) + struct.pack("<IIQ", 9, 4, len(value)) + packed
    return string(name) + struct.pack("<II", 4, value)


def head(keys: dict[str, int | str | list[int]], version: int = 3) -> bytes:
    body = b"".join(key(name, value) for name, value in keys.items())
    return b"GGUF" + struct.pack("<IQQ", version, 0, len(keys)) + body


SMALL: dict[str, int | str | list[int]] = {
    "general.architecture": "llama",
    "llama.block_count": 30,
    "llama.context_length": 8192,
    "llama.embedding_length": 576,
    "llama.attention.head_count": 9,
    "llama.attention.head_count_kv": 3,
    "tokenizer.ggml.model": "gpt2",
}
