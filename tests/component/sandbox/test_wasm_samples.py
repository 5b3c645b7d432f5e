"""The sample skills in Rust, C, JavaScript and Python, as they are shipped."""

from __future__ import annotations

import statistics
import tomllib
import zlib
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, strategies

from component.sandbox.wasm import WasmRuntime
from component.skills.errors import CapabilityMissing, InvalidParam
from component.skills.inputs import schema_inputs
from tests.component.sandbox import guests
from tests.component.sandbox.running import Told, context, runtime, skill, trusted

pytestmark = pytest.mark.anyio
SAMPLES = Path(__file__).parents[3] / "examples" / "skills"


def shipped(name: str) -> bytes:
    return (SAMPLES / name / "skill.wasm").read_bytes()


@pytest.mark.parametrize("name", ["word-count", "checksum", "dice", "statistics"])
def test_each_wasm_sample_has_a_manifest_and_a_build_script(name: str) -> None:
    """Each sample has a manifest, whose schema can be used, and a build script."""
    declared = tomllib.loads((SAMPLES / name / "skill.toml").read_text())["skill"]
    assert declared["name"] == name
    assert schema_inputs(declared["input_schema"]).params
    assert (SAMPLES / name / "build.sh").stat().st_mode & 0o111


async def test_the_rust_sample_counts_words(wasm: WasmRuntime) -> None:
    """The skill in Rust counts words."""
    one = skill(wasm, shipped("word-count"))
    result = await one.execute({"text": 'two "words"\nand\u00e9 \U0001f600'}, context())
    assert msgspec.json.decode(result.outputs[0].text) == {
        "words": 4,
        "lines": 2,
        "characters": 18,
    }
    with pytest.raises(InvalidParam, match="not a text"):
        await one.execute({"text": 1}, context())


def test_c_agrees_with_zlib() -> None:
    """The skill in C computes the CRC-32 of any text."""
    import anyio

    one = skill(runtime(probe=trusted), shipped("checksum"))

    @given(strategies.text(max_size=200))
    def agrees(text: str) -> None:
        async def run() -> None:
            one._loading = anyio.Lock()  # of another event loop
            result = await one.execute({"text": text}, context())
            assert msgspec.json.decode(result.outputs[0].text) == {
                "crc32": f"{zlib.crc32(text.encode()):08x}",
                "bytes": len(text.encode()),
            }

        anyio.run(run)

    agrees()


async def test_the_javascript_sample_rolls_dice() -> None:
    """The skill in JavaScript rolls dice with random numbers of the host, and logs."""
    wasm = guests.kept_runtime()  # compiling it takes several seconds
    told = Told()
    one = skill(wasm, shipped("dice"), granted=("random",), told=told)
    found = set()
    for _ in range(4):
        result = await one.execute({"dice": "9d100"}, context())
        rolled = msgspec.json.decode(result.outputs[0].text)
        assert len(rolled["rolls"]) == 9
        assert all(1 <= each <= 100 for each in rolled["rolls"])
        assert rolled["total"] == sum(rolled["rolls"])
        found.add(tuple(rolled["rolls"]))
    assert len(found) == 4
    assert told.lines[0] == ("debug", "rolled 9d100")
    with pytest.raises(InvalidParam, match="2d6") as refused:
        await one.execute({"dice": "many"}, context())
    assert refused.value.name == "dice"
    with pytest.raises(CapabilityMissing, match="random"):
        await skill(wasm, shipped("dice")).execute({"dice": "1d6"}, context())


async def test_the_python_sample_computes_statistics() -> None:
    """The skill in Python computes what Python computes."""
    told = Told()
    one = skill(guests.kept_runtime(), guests.statistics(), told=told)
    numbers = [1, 2.5, 4, 10]
    result = await one.execute({"numbers": numbers}, context())
    assert msgspec.json.decode(result.outputs[0].text) == {
        "mean": statistics.fmean(numbers),
        "median": statistics.median(numbers),
        "deviation": statistics.stdev(numbers),
    }
    assert told.lines == [("debug", "4 numbers")]
    with pytest.raises(InvalidParam, match="at least two"):
        await one.execute({"numbers": [1]}, context())
