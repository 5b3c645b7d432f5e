"""Reads the metadata in the file of a local model, before it is loaded.

The format is GGUF 2 and 3: magic, version, counts, then keys with typed values
(https://github.com/ggml-org/ggml/blob/master/docs/gguf.md). Only the keys up to the vocabulary are
read, a few hundred bytes.
"""

import math
import os
import struct
from pathlib import Path
from typing import BinaryIO

import msgspec

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_NUMBERS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q"}
_NUMBERS |= {11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9
_MOST_KEYS = 10_000
_MOST_BYTES = 1 << 20  # of one string, or one list: all keys before the vocabulary are far smaller
_VOCABULARY = "tokenizer."
_KV_BYTES = 2  # a number in the cache of a context has 16 bits
_LEAST_CACHE_MIB, _MOST_CACHE_MIB = 128, 1024
_SCRATCH_BYTES = 100 << 20  # what llama.cpp needs beside weights and cache, as measured, rounded up

_Value = int | float | bool | str | list[int | float | bool | str]


class BadModelFileError(Exception):
    """The file cannot be read, or contains no model. The text is a sentence."""


class ModelFile(msgspec.Struct, frozen=True):
    """A file that contains a model.

    Attributes:
        path: of the file.
        size: in bytes.
        context_tokens: the context size of the model.
        context_bytes: memory for one token of the context, in bytes; 0 if unknown.
    """

    path: Path
    size: int
    context_tokens: int
    context_bytes: int

    def needs(self, context_tokens: int) -> int:
        """Return about how many bytes of memory the model needs with a context of this size."""
        cache = self.cache_mib(context_tokens) << 20
        return self.size + self.context_bytes * context_tokens + cache + _SCRATCH_BYTES

    def cache_mib(self, context_tokens: int) -> int:
        """Return the size of the cache for the prompts of other conversations, in MiB: the size of
        one context, within limits.
        """
        wanted = math.ceil(self.context_bytes * context_tokens / (1 << 20))
        return max(_LEAST_CACHE_MIB, min(wanted, _MOST_CACHE_MIB))


def read_model_file(path: Path) -> ModelFile:
    """Read the metadata of a file.

    Raises BadModelFileError: there is no file, it cannot be opened, or it contains no model.
    """
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            keys = _keys(file, path)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise BadModelFileError(f"the model {path} cannot be opened: {reason}") from error
    kind = keys.get("general.architecture")
    context = keys.get(f"{kind}.context_length")
    if not isinstance(kind, str) or not isinstance(context, int) or context < 1:
        raise BadModelFileError(
            f"{path} does not say what model it holds: use a complete GGUF file"
        )
    return ModelFile(path, size, context, _context_bytes(keys, kind))


def _keys(file: BinaryIO, path: Path) -> dict[str, _Value]:
    if file.read(4) != _MAGIC:
        raise BadModelFileError(
            f"{path} is not a GGUF file: give the file of a model in GGUF format"
        )
    keys: dict[str, _Value] = {}
    try:
        version, _tensors, count = struct.unpack("<IQQ", file.read(20))
        if version not in _VERSIONS:
            raise BadModelFileError(f"{path} has version {version} of GGUF, but 2 or 3 is needed")
        for _ in range(min(count, _MOST_KEYS)):
            key = _string(file)
            if key.startswith(_VOCABULARY) and "general.architecture" in keys:
                break
            (kind,) = struct.unpack("<I", file.read(4))
            keys[key] = _value(file, kind)
    except (struct.error, ValueError, KeyError, UnicodeDecodeError) as error:
        raise BadModelFileError(f"{path} is damaged: its head cannot be read") from error
    return keys


def _value(file: BinaryIO, kind: int) -> _Value:
    if kind == _STRING:
        return _string(file)
    if kind != _ARRAY:
        return _number(file, kind)
    of, count = struct.unpack("<IQ", file.read(12))
    if of == _ARRAY or count > _MOST_BYTES:
        raise ValueError("a list of lists, or a long one, stands where none belongs")
    return [_string(file) if of == _STRING else _number(file, of) for _ in range(count)]


def _number(file: BinaryIO, kind: int) -> int | float | bool:
    layout = _NUMBERS[kind]
    value: int | float | bool = struct.unpack(layout, file.read(struct.calcsize(layout)))[0]
    return value


def _string(file: BinaryIO) -> str:
    (length,) = struct.unpack("<Q", file.read(8))
    if length > _MOST_BYTES:
        raise ValueError("a string is longer than the head of a file")
    text: bytes = file.read(length)
    if len(text) < length:
        raise ValueError("the file ends in a string")
    return text.decode()


def _context_bytes(keys: dict[str, _Value], kind: str) -> int:
    """Keys and values of all layers for one token; some files have a number for each layer."""

    def number(name: str) -> int:
        value = keys.get(f"{kind}.{name}")
        if isinstance(value, list):
            value = max((item for item in value if isinstance(item, int)), default=0)
        return value if isinstance(value, int) and value > 0 else 0

    heads = number("attention.head_count")
    if not heads:
        return 0
    wide = number("embedding_length") // heads
    both = (number("attention.key_length") or wide) + (number("attention.value_length") or wide)
    return number("block_count") * (number("attention.head_count_kv") or heads) * both * _KV_BYTES
