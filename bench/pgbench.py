"""The limit: pgbench running the kernel's own claim and settle SQL, one client and no Python.

One cycle settles a batch and claims the next in one transaction, as a worker does. The script is
made from the kernel's statements, so it cannot drift from them.
"""

import asyncio
import re
import tempfile
from pathlib import Path
from typing import Final

from bench.server import USER, Server
from penstock.kernel.claim import CLAIM
from penstock.kernel.settle import SETTLE

BATCH: Final = 500
SECONDS_MAX: Final = 600.0

# What one cycle hands to the next: the lease, its items, and where the claim ended.
CARRIED: Final = {
    "token": "0",
    "ids": "{}",
    "durations": "{}",
    "cursor_due": "-infinity",
    "cursor_id": "0",
}
SETTLE_ARGUMENTS: Final = (
    ":token::bigint", "true", ":ids", ":durations", "'{}'", "'{}'", "'{}'", "'{}'", "'{}'", "'{}'",
    "NULL",
)  # fmt: skip
CLAIM_ARGUMENTS: Final = (
    "1", ":cursor_due::timestamptz", ":cursor_id::bigint", ":batch", "'pgbench'",
    "interval '200 milliseconds'", "NULL",
)  # fmt: skip
KEPT: Final = """
SELECT max(token) AS token, array_agg(id)::text AS ids, array_agg(0)::text AS durations,
    max(due_at) AS cursor_due, max(id) AS cursor_id, sum(length(payload::text)) AS bytes
FROM claimed
"""


class PgbenchFailed(Exception):
    """pgbench did not report a rate; the text is its complaint."""


def script() -> str:
    """Return one cycle as a pgbench script."""
    claim = _body(CLAIM)
    start = claim.rindex("\nSELECT\n")
    kept = f"{claim[:start]}, claimed AS ({claim[start:]}){KEPT}"
    return "\n".join(
        (
            "BEGIN;",
            f"{_filled(_body(SETTLE), SETTLE_ARGUMENTS)};",
            _filled(kept, CLAIM_ARGUMENTS).rstrip() + " \\gset",
            "COMMIT;",
            "",
        )
    )


async def items_per_second(server: Server, database: str, *, items: int) -> float:
    """Return how many items a second the bare SQL can claim and settle."""
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as file:
        file.write(script())
        file.flush()
        text = await _run(server, database, Path(file.name), cycles=items // BATCH)
    found = re.search(r"^tps = ([\d.]+)", text, re.MULTILINE)
    if found is None:
        raise PgbenchFailed(_complaint(text))
    return float(found[1]) * BATCH


async def _run(server: Server, database: str, file: Path, *, cycles: int) -> str:
    process = await asyncio.create_subprocess_exec(
        str(server.binaries / "pgbench"),
        *("--no-vacuum", "--client=1", "--protocol=prepared"),
        *(f"--file={file}", f"--transactions={cycles}", f"--define=batch={BATCH}"),
        *(f"--define={name}={value}" for name, value in CARRIED.items()),
        *(f"--host={server.host}", f"--username={USER}", database),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), SECONDS_MAX)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return output.decode()


def _body(statement: str) -> str:
    """Return a statement without its comments, which may hold a colon, and its semicolon."""
    lines = (line for line in statement.splitlines() if not line.lstrip().startswith("--"))
    return "\n".join(lines).strip().removesuffix(";")


def _filled(statement: str, arguments: tuple[str, ...]) -> str:
    """Put pgbench's variables in the place of $1, $2, …"""
    return re.sub(r"\$(\d+)", lambda found: arguments[int(found[1]) - 1], statement)


def _complaint(text: str) -> str:
    lines = text.strip().splitlines() or ["no output"]
    return next((line for line in lines if "error" in line.lower()), lines[-1])
