"""`python -m bench.readme [RESULT …]`: write the measured table of the README from results.

Of each case in `JOBS` the table has the first row that is held against a bar, and every row that
misses its bar. A case that a later file has as well is taken from the later file.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bench.environment import ROOT
from bench.report import RESULT, figure
from tools.reference.blocks import filled, table

README: Final = ROOT / "README.md"
BLOCK: Final = "bench"
GIB: Final = 1 << 30

JOBS: Final[dict[str, tuple[str, ...]]] = {
    "kernel": ("drain", "enqueue", "latency", "ordered", "rate"),
    "slots": ("slots_single", "slots_batch", "slots_million"),
    "webhooks": ("webhooks_deliver", "webhooks_accept", "webhooks_order"),
    "mail": ("mail_small", "mail_large"),
    "outbox": ("outbox_ordered", "outbox_sealing", "outbox_enqueue"),
    "payments": (
        "payments", "payments_rate", "payments_cycles", "payments_switch", "temporal_executed",
        "temporal_starts", "temporal_starts_postgres", "temporal_rows", "temporal_rows_postgres",
    ),
}  # fmt: skip


def main(paths: Sequence[str]) -> int:
    """Write the table; return the exit code."""
    results = [json.loads(Path(path).read_text()) for path in paths or [str(RESULT)]]
    README.write_text(filled(README.read_text(), {BLOCK: measured(results)}))
    return 0


def measured(results: Sequence[Mapping[str, Any]]) -> str:
    """Return when and where results were measured, and the table of them."""
    rows: dict[str, list[Mapping[str, Any]]] = {}
    for result in results:
        rows |= _shown_rows(result)
    lines = [
        [job, row["name"], _value(row), row["bar"], row["verdict"]]
        for job, cases in JOBS.items()
        for case in cases
        for row in rows.get(case, [])
    ]
    days = sorted({result["started_at"][:10] for result in results})
    places = sorted({_machine(result["machine"]) for result in results})
    where = f"Measured on {' and '.join(days)} on {' and on '.join(places)}"
    if any(result["options"]["quick"] for result in results):
        where += ", in short runs (`python -m bench --quick`)"
    return f"{where}.\n\n{table(['job', 'what', 'measured', 'must be', 'verdict'], lines)}"


def _shown_rows(result: Mapping[str, Any]) -> dict[str, list[Mapping[str, Any]]]:
    """Return the first row of each case that is held against a bar, and those that miss theirs."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in result["rows"]:
        is_judged = row["verdict"] not in {"shown", "skipped"}
        if is_judged and (row["case"] not in found or row["verdict"] == "missed"):
            found.setdefault(row["case"], []).append(row)
    return found


def _value(row: Mapping[str, Any]) -> str:
    if row["ours"] is None:
        return "—"
    own = _with_unit(row["ours"], row["unit"])
    if row["against"] == "the bar" or row["ratio"] is None:
        return own
    theirs = f"{row['against']}: {_with_unit(row['theirs'], row['unit'])}"
    return f"{own}, {figure(row['ratio'])} times {theirs}"


def _with_unit(value: float, unit: str) -> str:
    return f"{figure(value)} {unit}".strip().replace(" /s", "/s")


def _machine(machine: Mapping[str, Any]) -> str:
    memory = round(machine["memory_bytes"] / GIB)
    return f"{machine['cpus']} CPUs with {memory} GiB, Python {machine['python']}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
