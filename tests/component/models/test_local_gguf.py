"""The metadata of a model's file, and errors of bad files."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from component.models.local import ModelFile, read_model_file
from component.models.protocol import ModelRefusedError
from tests.component.models import gguf

_HEAD = gguf.head(gguf.SMALL)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.gguf"


def test_the_context_and_its_memory_are_read(path: Path) -> None:
    path.write_bytes(_HEAD)
    file = read_model_file(path)
    assert (file.context_tokens, file.size) == (8192, len(_HEAD))
    # 30 layers of 3 heads of 64 numbers, as key and as value, two bytes each.
    assert file.context_bytes == 30 * 3 * 64 * 2 * 2
    assert file.needs(2048) - file.needs(0) == 2048 * file.context_bytes


def test_heads_per_layer_and_named_sizes_are_read(path: Path) -> None:
    keys = gguf.SMALL | {
        "llama.attention.head_count_kv": [1, 4, 2],
        "llama.attention.key_length": 128,
        "llama.attention.value_length": 32,
    }
    keys["tokenizer.ggml.model"] = keys.pop("tokenizer.ggml.model")
    path.write_bytes(gguf.head(keys))
    assert read_model_file(path).context_bytes == 30 * 4 * (128 + 32) * 2


def test_a_file_without_heads_is_accepted(path: Path) -> None:
    path.write_bytes(gguf.head({"general.architecture": "rwkv", "rwkv.context_length": 1024}))
    assert read_model_file(path).context_bytes == 0


def test_a_vocabulary_is_not_read(path: Path) -> None:
    cut = _HEAD.index(b"tokenizer.ggml.model") + len(b"tokenizer.ggml.model")
    path.write_bytes(_HEAD[:cut])
    assert read_model_file(path).context_tokens == 8192


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is not a GGUF file"),
        (b"PK\x03\x04 something else", "is not a GGUF file"),
        (b"GGUF", "is damaged"),
        (_HEAD[:40], "is damaged"),
        (gguf.head(gguf.SMALL, version=9), "has version 9 of GGUF, but 2 or 3 is needed"),
        (gguf.head({"general.architecture": "llama"}), "does not say what model it holds"),
        (gguf.head({"general.architecture": 5}), "does not say what model it holds"),
    ],
)
def test_the_error_names_the_fault_of_a_file(path: Path, content: bytes, sentence: str) -> None:
    path.write_bytes(content)
    with pytest.raises(ModelRefusedError, match=sentence) as caught:
        read_model_file(path)
    assert str(path) in str(caught.value)


def test_a_missing_file_and_a_folder_are_reported(tmp_path: Path) -> None:
    with pytest.raises(ModelRefusedError, match="cannot be opened: No such file"):
        read_model_file(tmp_path / "nothing.gguf")
    with pytest.raises(ModelRefusedError, match="cannot be opened: Is a directory"):
        read_model_file(tmp_path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    start=st.integers(0, len(_HEAD)),
    junk=st.binary(max_size=40) | st.just(b"\xff" * 16),
    gap=st.integers(0, 40),
)
def test_any_damage_is_reported_as_a_sentence(
    path: Path, start: int, junk: bytes, gap: int
) -> None:
    path.write_bytes(_HEAD[:start] + junk + _HEAD[start + gap :])
    try:
        file = read_model_file(path)
    except ModelRefusedError:
        return
    assert file.context_tokens > 0
    assert file.context_bytes >= 0


@pytest.mark.parametrize(
    ("context_bytes", "context_tokens", "mib"),
    [(23_040, 2048, 128), (23_040, 8192, 180), (131_072, 4096, 512), (131_072, 131_072, 1024)],
)
def test_the_cache_of_prompts_is_bounded(context_bytes: int, context_tokens: int, mib: int) -> None:
    file = ModelFile(Path("m"), 1000, 8192, context_bytes)
    assert file.cache_mib(context_tokens) == mib
    needed = file.needs(context_tokens) - file.needs(0)
    assert needed == context_bytes * context_tokens + ((mib - 128) << 20)
