"""`python -m bench`: measure, print one table, write JSON."""

import argparse
import asyncio
import contextlib
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

from bench.bars import CASES
from bench.measure import Bench, Sizes
from bench.registry import PEERS, Peer, Subject, our_subject, peer_subject
from bench.report import RESULT, Report
from bench.server import server

QUICK_ITEMS: Final = 100_000
FULL_ITEMS: Final = 1_000_000
KEYS: Final = 20_000
QUICK_INSTRUCTIONS: Final = 50_000
PARTICIPANTS: Final = 10_000
EXIT_INTERRUPTED: Final = 130


def main() -> int:
    """Run what was asked for; return the exit code."""
    options = _options()
    if options.list:
        _list()
        return 0
    report = Report()
    try:
        asyncio.run(_run(options, report))
    except (KeyboardInterrupt, asyncio.CancelledError):
        report.say("Interrupted: this is what there is.")
        return EXIT_INTERRUPTED
    finally:
        _finish(options, report)  # also after a crash: what was measured is worth seeing
    bad = any(row.verdict in ("missed", "failed") for row in report.rows)
    return 1 if options.strict and bad else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, a few minutes")
    parser.add_argument("--only", nargs="+", choices=list(CASES), metavar="CASE", default=[])
    parser.add_argument(
        "--peers", nargs="*", choices=[p.name for p in PEERS], metavar="PEER", default=None
    )
    parser.add_argument("--items", type=_count, help="items per drain (default 1M, quick 100k)")
    parser.add_argument(
        "--rounds", type=int, help="turns of what is measured in turns (default 5, quick 1)"
    )
    parser.add_argument("--json", type=Path, default=RESULT, metavar="PATH")
    parser.add_argument("--list", action="store_true", help="say which cases and peers there are")
    parser.add_argument("--strict", action="store_true", help="exit 1 when a bar is missed")
    return parser.parse_args()


def _count(text: str) -> int:
    if (count := int(text)) < 1000:
        raise argparse.ArgumentTypeError("at least 1000, or it measures the start-up")
    return count


def _list() -> None:
    report = Report()
    for name, case in CASES.items():
        report.say(f"{name:19} {(case.__doc__ or '').splitlines()[0]}")
    report.say(f"{'peers':19} {', '.join(peer.name for peer in PEERS)}")


async def _run(options: argparse.Namespace, report: Report) -> None:
    task = asyncio.current_task()
    assert task is not None
    # A polite kill must stop the server and delete its folder too.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    report.start()
    try:
        subjects: list[Subject] = []
        for peer in _chosen(options):
            report.doing(f"{peer.name}: preparing its environment")
            subjects.append(await asyncio.to_thread(peer_subject, peer))
        report.doing("starting PostgreSQL")
        with server() as running:
            bench = Bench(
                server=running,
                sizes=_sizes(options),
                report=report,
                ours=our_subject(),
                peers=subjects,
            )
            for name in options.only or CASES:
                report.say(f"{name}: {(CASES[name].__doc__ or '').splitlines()[0]}")
                report.rows += [replace(row, case=name) for row in await CASES[name](bench)]
    finally:
        report.stop()


def _chosen(options: argparse.Namespace) -> list[Peer]:
    return [p for p in PEERS if options.peers is None or p.name in options.peers]


def _sizes(options: argparse.Namespace) -> Sizes:
    quick: bool = options.quick
    items: int = options.items or (QUICK_ITEMS if quick else FULL_ITEMS)
    instructions: int = options.items or (QUICK_INSTRUCTIONS if quick else FULL_ITEMS)
    return Sizes(
        items=items,
        others=items,
        backlog=items * 10,
        keys=min(KEYS, items // 5),
        instructions=instructions,
        participants=min(PARTICIPANTS, instructions // 25),
        latency_samples=50 if quick else 300,
        rate_seconds=5.0 if quick else 30.0,
        rate_runs=2 if quick else 10,
        idle_seconds=10.0 if quick else 30.0,
        burst_seconds=3.0 if quick else 10.0,
        rounds=options.rounds or (1 if quick else 5),
        quiet_seconds_max=3.0 if quick else 30.0,
    )


def _finish(options: argparse.Namespace, report: Report) -> None:
    if not report.rows:
        return
    report.table()
    with contextlib.suppress(OSError):
        chosen = {k: str(v) if isinstance(v, Path) else v for k, v in vars(options).items()}
        report.write(options.json, chosen)


if __name__ == "__main__":
    sys.exit(main())
