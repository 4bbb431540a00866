"""Bodies of NDJSON: lines in chunks as they come, and results that are sent after the whole body.

A client that sends everything before it reads would otherwise cause a deadlock.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import IO, TypeAlias

from penstock.base.errors import InvalidInput

NDJSON = "application/x-ndjson"
SPOOLED_BYTES_MAX = 8 * 1024 * 1024  # Of results in memory; more are on disk.
OUT_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class LineLimits:
    """How many lines a body may have, how long each, and how many are yielded at once."""

    lines_max: int
    line_bytes_max: int
    chunk: int


@dataclass(frozen=True, slots=True)
class LineTooLong:
    """In the place of a line whose bytes were not kept; `number` counts all lines from 1."""

    number: int
    bytes_max: int

    def refusal(self) -> InvalidInput:
        """Return what is said about the line."""
        return InvalidInput(f"line {self.number}", f"has more than {self.bytes_max} bytes")


Line: TypeAlias = bytes | LineTooLong


async def chunks_of_lines(
    chunks: AsyncIterator[bytes], limits: LineLimits
) -> AsyncIterator[list[Line]]:
    """Yield lists of at most `limits.chunk` lines, without empty ones; raises InvalidInput."""
    splitter = _Splitter(limits.line_bytes_max)
    lines: list[Line] = []
    count = 0
    async for chunk in chunks:
        fresh = splitter.split(chunk)
        count += len(fresh)
        if count > limits.lines_max:
            raise InvalidInput("body", f"has more than {limits.lines_max:,} lines")
        lines += fresh
        while len(lines) >= limits.chunk:
            yield lines[: limits.chunk]
            lines = lines[limits.chunk :]
    lines += splitter.split(b"\n")
    if lines:
        yield lines


@dataclass(slots=True)
class _Splitter:
    """Splits chunks into lines; of a line that is not complete it keeps at most `bytes_max`."""

    bytes_max: int
    number: int = 0  # Of the last complete line.
    rest: bytes = b""
    is_too_long: bool = False  # The line that is not complete.

    def split(self, chunk: bytes) -> list[Line]:
        """Return the lines that this chunk completes, without empty ones."""
        *whole, self.rest = (self.rest + chunk).split(b"\n")
        found = [self._complete(line) for line in whole]
        if len(self.rest) > self.bytes_max:
            self.rest, self.is_too_long = b"", True
        return [line for line in found if line is not None]

    def _complete(self, line: bytes) -> Line | None:
        self.number += 1
        if self.is_too_long or len(line) > self.bytes_max:
            self.is_too_long = False
            return LineTooLong(self.number, self.bytes_max)
        return line if line.strip() else None


async def sent_and_closed(answers: IO[bytes]) -> AsyncIterator[bytes]:
    """Yield a spooled file from its beginning, and close it."""
    try:
        await asyncio.to_thread(answers.seek, 0)
        while chunk := await asyncio.to_thread(answers.read, OUT_BYTES):
            yield chunk
    finally:
        answers.close()
