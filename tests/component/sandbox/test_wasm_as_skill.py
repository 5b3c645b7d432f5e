"""A skill in WebAssembly, called like every other one."""

from __future__ import annotations

from typing import Any, cast

import pytest

from component.sandbox.wasm import WasmRuntime
from component.sandbox.wasm_call import WasmLimits
from component.skills import Skill
from component.skills.calling import Threads, call
from component.skills.errors import SkillFailed, SkillTimeout
from component.skills.inputs import schema_inputs
from component.tasks.outputs import error_of
from tests.component.sandbox import wat
from tests.component.sandbox.running import context, skill

pytestmark = pytest.mark.anyio
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}}


def offered(wasm: WasmRuntime, code: bytes, timeout: float, limits: WasmLimits) -> Skill:
    guest = skill(wasm, code, limits=limits)

    async def invoke(arguments: Any, given: Any) -> Any:
        return await guest.execute(cast("dict[str, Any]", arguments), given)

    return Skill(
        name="guest",
        input_schema=SCHEMA,
        inputs=schema_inputs(SCHEMA),
        kind="async",
        wants_context=True,
        timeout=timeout,
        invoke=invoke,
        source="test",
    )


async def test_results_and_failures_are_those_of_any_skill(wasm: WasmRuntime) -> None:
    """The reason why a guest was stopped reaches the caller; a time-out is one."""
    share = Threads(4, 4).share("romeo@example.com")
    echo = offered(wasm, wat.ECHO, 60, WasmLimits())
    result = await call(echo, {"text": "hi"}, context(), share)
    assert [output.text for output in result.outputs] == ['{"text":"hi"}']

    loop = wat.command("(loop $l (br $l))")
    bound = offered(wasm, loop, 60, WasmLimits(fuel=1_000))
    with pytest.raises(SkillFailed, match="1,000 instructions") as failed:
        await call(bound, {}, context(), share)
    assert "1,000 instructions" in str(error_of(bound, failed.value).text)

    slow = offered(wasm, loop, 0.2, WasmLimits())
    with pytest.raises(SkillTimeout):
        await call(slow, {}, context(), share)
