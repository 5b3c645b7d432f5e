"""Runs confined programs to their end, with bounds on what they write."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import anyio
import msgspec


class Ended(msgspec.Struct, frozen=True):
    """How a program has ended. `code` is None if it was killed, because it wrote too much."""

    code: int | None
    output: bytes
    errors: bytes


async def run_program(
    command: Sequence[str], given: bytes = b"", *, most: int, most_errors: int = 4_000
) -> Ended:
    """Run a command (of `confined_command`) with `given` on its standard input.

    It may write `most` bytes. Of its error output, `most_errors` are kept. It is killed if this is
    cancelled.
    """
    async with await anyio.open_process(
        command, env={}, cwd="/", start_new_session=True
    ) as process:
        stdin, stdout, stderr = process.stdin, process.stdout, process.stderr
        assert stdin is not None
        assert stdout is not None
        assert stderr is not None
        output, errors = bytearray(), bytearray()

        async def write() -> None:
            # It may end before it has read everything.
            with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                await stdin.send(given)
                await stdin.aclose()

        async def keep_errors() -> None:
            async for piece in stderr:
                errors.extend(piece[: most_errors - len(errors)])

        try:
            async with anyio.create_task_group() as group:
                group.start_soon(write)
                group.start_soon(keep_errors)
                async for piece in stdout:
                    output += piece
                    if len(output) > most:
                        process.kill()
                        group.cancel_scope.cancel()
            code = None if len(output) > most else await process.wait()
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            raise
    return Ended(code, bytes(output[:most]), bytes(errors))
