"""pgbench: scripts run without any Python, and the limit that the kernel is held against.

The limit is the kernel's own claim and settle SQL with one client. One cycle settles a batch and
claims the next in one transaction, as a worker does. Its script is made from the kernel's
statements, so it cannot drift from them.
"""

import asyncio
import re
import tempfile
from dataclasses import dataclass
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
    "NULL", "false",
)  # fmt: skip
CLAIM_ARGUMENTS: Final = (
    "(SELECT lane_id FROM penstock.lane WHERE name = 'bench')",
    ":cursor_due::timestamptz", ":cursor_id::bigint", ":batch", "'pgbench'",
    "interval '200 milliseconds'", "NULL", "interval '30 milliseconds'",
    "interval '30 milliseconds'", "true",
)  # fmt: skip
KEPT: Final = """
SELECT max(token) AS token, array_agg(id)::text AS ids, array_agg(0)::text AS durations,
    max(due_at) AS cursor_due, max(id) AS cursor_id, sum(length(payload::text)) AS bytes
FROM claimed
"""


class PgbenchFailed(Exception):
    """pgbench did not report a rate; the text is its complaint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """How often a script was run by all clients together."""

    times: int
    per_second: float


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
    carried = (f"--define={name}={value}" for name, value in CARRIED.items())
    cycles = (f"--transactions={items // BATCH}", f"--define=batch={BATCH}")
    ran = await run(server, database, script(), "--client=1", *cycles, *carried)
    return ran.per_second * BATCH


async def run(server: Server, database: str, text: str, *options: str) -> Ran:
    """Run a script with prepared statements, as often as the options say."""
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as file:
        file.write(text)
        file.flush()
        output = await _run(server, database, f"--file={file.name}", *options)
    times = re.search(r"^number of transactions actually processed: (\d+)", output, re.MULTILINE)
    rate = re.search(r"^tps = ([\d.]+)", output, re.MULTILINE)
    if times is None or rate is None:
        raise PgbenchFailed(_complaint(output))
    return Ran(times=int(times[1]), per_second=float(rate[1]))


async def _run(server: Server, database: str, *options: str) -> str:
    process = await asyncio.create_subprocess_exec(
        str(server.binaries / "pgbench"),
        *("--no-vacuum", "--protocol=prepared", *options),
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
