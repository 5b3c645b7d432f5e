"""Code is tried out in a process that can do nothing else."""

import re
import sys
from pathlib import Path

import anyio
import pytest

from component.sandbox.launch import confined_command
from component.sandbox.profile import Profile
from component.sandbox.wasm_probe import compiler_profile, probe

pytestmark = pytest.mark.anyio


async def test_the_reason_is_that_of_the_compiler() -> None:
    reason = await probe(b"\0asm" + b"x" * 4, 60, 4 << 30)
    assert "version" in reason
    assert await probe(b"\0asm\1\0\0\0", 60, 4 << 30) == ""


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import os; os._exit(3)", "did not survive"),
        ("import os; os._exit(126)", "cannot be confined"),
        ("import os; [os.write(1, b'x' * 4096) for _ in range(1000)]; os._exit(1)", "^x{300}$"),
    ],
)
async def test_a_compiler_that_reads_no_code_gives_a_reason(
    monkeypatch: pytest.MonkeyPatch, code: str, reason: str
) -> None:
    def command(profile: Profile, argv: list[str]) -> list[str]:
        return confined_command(profile, [sys.executable, "-I", "-c", code])

    monkeypatch.setattr("component.sandbox.wasm_probe.confined_command", command)
    assert re.search(reason, await probe(bytes(8 << 20), 60, 1 << 30))


@pytest.mark.parametrize(
    "attack",
    [
        "open({secret!r})",
        "import socket; socket.create_connection(('127.0.0.1', 1))",
        "import os; os.kill(os.getppid(), 0)",
    ],
)
async def test_a_compiler_that_is_taken_over_can_do_nothing(tmp_path: Path, attack: str) -> None:
    secret = tmp_path / "secret"
    secret.write_text("a secret")
    code = f"try:\n    {attack.format(secret=str(secret))}\nexcept OSError as e: print(e.errno)"
    command = confined_command(compiler_profile(60, 1 << 30), [sys.executable, "-I", "-c", code])
    ended = await anyio.run_process(command, env={}, cwd="/", check=False)
    assert ended.stdout.strip() in (b"1", b"2", b"3", b"13"), ended.stderr
