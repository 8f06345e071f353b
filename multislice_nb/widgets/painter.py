"""Draws charts in a process of its own.

Matplotlib's parts, when they are read, and its pictures, when they are packed, hold Python's lock for so long at a
time that the kernel would not answer meanwhile, in whichever of its threads that is.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multislice_nb.errors import ExperimentError

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import Sequence

__all__ = ["Painter"]

_DEADLINE = 60.0
"""Seconds for one chart, reading matplotlib included."""
_LONGEST = 2**24
"""Bytes of the line before a picture; it names all groups of a file."""


class Painter:
    """One process, started with the first chart; it ends by itself when nobody asks for another, or with this one.

    Used on the background loop alone.
    """

    def __init__(self) -> None:
        self._process: Process | None = None
        self._life: asyncio.Task[None] | None = None
        self._busy: asyncio.Lock | None = None

    async def draw(self, files: Sequence[Path], **choices: Any) -> tuple[list[str], bytes]:
        """The groups that there are, and the chart as PNG.

        Args:
            files: Results; with two, the second one's lines are hollow.
            choices: The keywords of `explore`.

        Raises:
            ExperimentError: There is nothing to draw, or the process did not answer.
        """
        self._busy = self._busy or asyncio.Lock()
        question = json.dumps([[str(file.absolute()) for file in files], choices]).encode() + b"\n"
        async with self._busy:
            try:
                async with asyncio.timeout(_DEADLINE):
                    return await self._answer(question)
            except (TimeoutError, OSError, asyncio.IncompleteReadError) as error:
                await self.close()
                raise ExperimentError(
                    f"The process that draws charts did not answer: {type(error).__name__}.",
                    fix="Choose again; %multislice plot draws in the kernel.",
                ) from error
            except asyncio.CancelledError:
                await self.close()  # its answer would be taken for the next one's
                raise

    async def close(self) -> None:
        """End the process."""
        life, self._life, self._process = self._life, None, None
        if life is not None:
            life.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await life

    async def _answer(self, question: bytes) -> tuple[list[str], bytes]:
        try:
            return await self._asked(question)
        except (OSError, asyncio.IncompleteReadError):  # it had just ended, as nobody had asked it for long
            await self.close()
            return await self._asked(question)

    async def _asked(self, question: bytes) -> tuple[list[str], bytes]:
        process = self._process
        if process is None or process.returncode is not None:
            process = self._process = await _started()
            self._life = asyncio.create_task(_live(process))
        assert process.stdin is not None  # noqa: S101 - as it was started
        assert process.stdout is not None  # noqa: S101 - as it was started
        process.stdin.write(question)
        await process.stdin.drain()
        answer = json.loads(await process.stdout.readuntil(b"\n"))
        if "what" in answer:
            raise ExperimentError(answer["what"], fix=answer["fix"])
        return answer["groups"], await process.stdout.readexactly(answer["bytes"])


async def _live(process: Process) -> None:
    """As long as the process; cancelled, also when the background loop ends, it ends the process."""
    try:
        await process.wait()
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _started() -> Process:
    paths = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "multislice_nb.widgets.painting",
        stdin=asyncio.subprocess.PIPE,  # it ends when this end of it is closed, at the latest by our own death
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        limit=_LONGEST,
        env=os.environ | {"PYTHONPATH": paths},
        start_new_session=True,  # the kernel's interrupt goes to its whole group
    )
