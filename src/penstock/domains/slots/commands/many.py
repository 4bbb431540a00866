"""Slots for the lines of a file: the REST API's batch, read from a file, with progress."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import BinaryIO

import click
import msgspec

from penstock.console.database import find_dsn, migrated
from penstock.console.output import print_lines, progress_bar
from penstock.contract.http import Content, Stream
from penstock.contract.ndjson import NDJSON
from penstock.domains.slots import wire
from penstock.domains.slots.assign import GIVEN
from penstock.domains.slots.batch import answer_batch
from penstock.postgres.pool import database_away, open_pool

CHUNK_BYTES = 256 * 1024
REFUSALS_MAX = 10  # Enough to see the cause; --json prints all.


def assign_lines(source: BinaryIO, data_dir: Path | None, *, as_json: bool) -> bool:
    """Assign slots, print the results or a summary; return whether all lines have slots."""
    return asyncio.run(_assign_lines(source, data_dir, as_json=as_json))


async def _assign_lines(source: BinaryIO, data_dir: Path | None, *, as_json: bool) -> bool:
    with database_away(), migrated():
        pool = await open_pool(find_dsn(data_dir), min_size=1, max_size=1)
        try:
            stream = Stream(media_type=NDJSON, chunks=_read_with_progress(source))
            return await _report(await answer_batch(pool, stream), as_json=as_json)
        finally:
            pool.terminate()


async def _read_with_progress(source: BinaryIO) -> AsyncIterator[bytes]:
    """Yield the file in chunks; a chunk is booked before the next one is read."""
    with progress_bar() as progress:
        task = progress.add_task("assign", total=_lines_of(source))
        while chunk := source.read(CHUNK_BYTES):
            yield chunk
            progress.advance(task, chunk.count(b"\n"))


def _lines_of(source: BinaryIO) -> int | None:
    """Return the number of lines, or None if the input cannot be read twice."""
    if not source.seekable():
        return None
    count = 0
    while chunk := source.read(CHUNK_BYTES):
        count += chunk.count(b"\n")
    source.seek(0)
    return count


async def _report(answers: Content, *, as_json: bool) -> bool:
    decoder = msgspec.json.Decoder(wire.Result)
    outcomes: Counter[str] = Counter()
    refusals: list[wire.Result] = []
    async for line in _lines(answers.body):
        result = decoder.decode(line)
        outcomes[result.outcome] += 1
        if as_json:
            click.echo(line)
        elif result.outcome not in GIVEN and len(refusals) < REFUSALS_MAX:
            refusals.append(result)
    if not as_json:
        _summarise(outcomes, refusals)
    return outcomes.keys() <= set(GIVEN)


async def _lines(body: bytes | AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    assert not isinstance(body, bytes), "a batch has a streamed body"
    rest = b""
    async for chunk in body:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line


def _summarise(outcomes: Counter[str], refusals: list[wire.Result]) -> None:
    """Print the number of results by outcome, and the first few refusals with their reasons."""
    if not outcomes:
        click.echo("the input has no lines", err=True)
        return
    print_lines([[name, f"{count:,}"] for name, count in outcomes.most_common()])
    for refused in refusals:
        reason = (refused.detail or "").removeprefix("body: ")
        click.echo(f"request {refused.index + 1}: {reason}", err=True)
    left_out = sum(count for name, count in outcomes.items() if name not in GIVEN) - len(refusals)
    if left_out:
        click.echo(f"and {left_out:,} more; --json shows all", err=True)
