"""Everything that the bench shows or writes: progress, the table, the JSON file."""

import json
import platform
import sys
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from bench import pins
from bench.figures import OTHERS, Measurement, Row, Verdict
from bench.server import SETTINGS

STYLES: dict[Verdict, str] = {
    "met": "green",
    "missed": "red",
    "failed": "red",
    "skipped": "yellow",
    "shown": "dim",
}
RESULT = Path(__file__).parent / "results" / "latest.json"
OTHERS_PERCENT_WORTH_SAYING = 5.0
LOG_COLUMNS = 130


class Report:
    """Collects measurements, shows what is going on, and prints the table at the end."""

    def __init__(self) -> None:
        self.measurements: list[Measurement] = []
        self.rows: list[Row] = []
        self._started_at = datetime.now(UTC)
        self._console = _console()
        self._status = self._console.status("starting")
        self._doing = ""
        self._total = 0

    def start(self) -> None:
        """Begin to show progress."""
        self._status.start()

    def stop(self) -> None:
        """Stop showing progress."""
        self._status.stop()

    def say(self, text: str) -> None:
        """Print one line."""
        self._console.print(text, highlight=False)

    def doing(self, text: str, total: int = 0) -> None:
        """Show what is being done; `total` items long when known."""
        self._doing, self._total = text, total
        self._status.update(text)

    def progress(self, count: int) -> None:
        """Show how far it is."""
        share = f" of {self._total:,}" if self._total else ""
        self._status.update(f"{self._doing}: {count:,}{share}")

    def measured(self, measurement: Measurement) -> Measurement:
        """Keep a measurement and say it."""
        self.measurements.append(measurement)
        value = f"{figure(measurement.value)} {measurement.unit}"
        said = value if measurement.value is not None else f"skipped: {measurement.reason}"
        self.say(f"  {measurement.what} · {measurement.subject}: {said}")
        return measurement

    def table(self) -> None:
        """Print the table."""
        table = Table(title="Penstock beside its peers, one run on one server")
        for name in ("bar", "ours", "against", "theirs", "ratio", "must be", "verdict"):
            numeric = name in ("ours", "theirs", "ratio")
            table.add_column(name, justify="right" if numeric else "left", no_wrap=numeric)
        reasons = list(dict.fromkeys(row.note for row in self.rows if row.note))
        for row in self.rows:
            table.add_row(
                row.name,
                f"{figure(row.ours)} {row.unit}" if row.ours is not None else "—",
                row.against,
                f"{figure(row.theirs)} {row.unit}" if row.theirs is not None else "—",
                f"{row.ratio:.2f}" if row.ratio is not None else "—",
                row.bar,
                f"[{STYLES[row.verdict]}]{_verdict(row, reasons)}[/]",
            )
        self._console.print(table)
        for number, reason in enumerate(reasons, 1):
            self.say(f"({number}) {reason}")
        shares = [m.detail[OTHERS] for m in self.measurements if OTHERS in m.detail]
        noisy = [share for share in shares if share > OTHERS_PERCENT_WORTH_SAYING]
        if noisy:
            self.say(
                f"Other processes took up to {max(noisy):.0f} % of the CPU during {len(noisy)} of "
                f"{len(shares)} measurements: trust the ratios less."
            )

    def write(self, path: Path, options: Mapping[str, object]) -> None:
        """Write everything as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        content = {
            "started_at": self._started_at.isoformat(),
            "finished_at": datetime.now(UTC).isoformat(),
            "machine": {
                "cpus": psutil.cpu_count(),
                "memory_bytes": psutil.virtual_memory().total,
                "platform": platform.platform(),
                "python": platform.python_version(),
            },
            "options": options,
            "postgres": SETTINGS,
            "pins": [
                *pins.PYTHON_PEERS,
                *pins.OBAN,
                *pins.AIOHTTP,
                *pins.AIOSMTPLIB,
                *pins.POST_OFFICE,
                *pins.NODE_PEERS,
            ],
            "rows": [asdict(row) for row in self.rows],
            "measurements": [asdict(m) for m in self.measurements],
        }
        path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")
        self.say(f"Written to {path}")


def figure(value: float | None) -> str:
    """Return a number as a reader wants it: thousands apart, decimals only where they matter."""
    if value is None:
        return "—"
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.2f}"


def _console() -> Console:
    # A log file has no width of its own; 80 columns would fold every row.
    width = None if sys.stdout.isatty() else LOG_COLUMNS
    return Console(width=width)


def _verdict(row: Row, reasons: list[str]) -> str:
    """Return the verdict, with the number of its reason under the table."""
    if row.verdict == "shown":
        return "—"
    return f"{row.verdict} ({reasons.index(row.note) + 1})" if row.note else row.verdict
