"""Bodies of NDJSON: lines in chunks as they come, and results that are sent after the whole body.

A client that sends everything before it reads would otherwise cause a deadlock.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import IO

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


async def chunks_of_lines(
    chunks: AsyncIterator[bytes], limits: LineLimits
) -> AsyncIterator[list[bytes]]:
    """Yield lists of at most `limits.chunk` lines, without empty ones; raises InvalidInput."""
    rest = b""
    lines: list[bytes] = []
    count = 0
    async for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        if len(rest) > limits.line_bytes_max:
            raise InvalidInput("body", f"has a line of more than {limits.line_bytes_max} bytes")
        fresh = [line for line in whole if line.strip()]
        count += len(fresh)
        if count > limits.lines_max:
            raise InvalidInput("body", f"has more than {limits.lines_max:,} lines")
        lines += fresh
        while len(lines) >= limits.chunk:
            yield lines[: limits.chunk]
            lines = lines[limits.chunk :]
    if rest.strip():
        lines.append(rest)
    if lines:
        yield lines


async def sent_and_closed(answers: IO[bytes]) -> AsyncIterator[bytes]:
    """Yield a spooled file from its beginning, and close it."""
    try:
        await asyncio.to_thread(answers.seek, 0)
        while chunk := await asyncio.to_thread(answers.read, OUT_BYTES):
            yield chunk
    finally:
        answers.close()
