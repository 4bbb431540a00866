"""Write the generated blocks of the reference pages, or with --check name the pages that differ."""

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path

from tools.reference import (
    cli,
    errors,
    lane_policy,
    log_events,
    metrics,
    rail_codes,
    rest,
    settings,
    smtp_replies,
)
from tools.reference.blocks import Incomplete, filled

FOLDER = "docs/reference"
PAGES: dict[str, Callable[[str], dict[str, str]]] = {
    "cli.md": cli.blocks,
    "errors.md": errors.blocks,
    "lane-policy.md": lane_policy.blocks,
    "log-events.md": log_events.blocks,
    "metrics.md": metrics.blocks,
    "rail-codes.md": rail_codes.blocks,
    "rest.md": rest.blocks,
    "settings.md": settings.blocks,
    "smtp-replies.md": smtp_replies.blocks,
}


class _Options(argparse.Namespace):
    check: bool
    root: Path


def main() -> int:
    """Run the command."""
    options = _options()
    _forget_settings()
    problems = [
        problem
        for name in PAGES
        if (problem := renew(options.root, name, is_check=options.check)) is not None
    ]
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def renew(root: Path, name: str, *, is_check: bool) -> str | None:
    """Write one page if it differs from the code; return what is wrong with it, or None."""
    path = root / FOLDER / name
    present = path.read_text(encoding="utf-8")
    try:
        wanted = filled(present, PAGES[name](present))
    except Incomplete as incomplete:
        return f"{FOLDER}/{name}: {incomplete}"
    if wanted == present:
        return None
    if is_check:
        return f"{FOLDER}/{name}: differs from the code; run `make docs`"
    path.write_text(wanted, encoding="utf-8")
    return None


def _forget_settings() -> None:
    """Remove variables that choose domains or change defaults: the pages show neither."""
    for name in [name for name in os.environ if name.startswith(("PENSTOCK_", "DISPATCH_"))]:
        del os.environ[name]


def _options() -> _Options:
    parser = argparse.ArgumentParser(prog="python -m tools.reference", description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 on a difference"
    )
    parser.add_argument(
        "--root",
        type=Path,
        default=Path(__file__).resolve().parents[2],
        help="the repository whose pages are written (default: the one this file is in)",
    )
    return parser.parse_args(namespace=_Options())


if __name__ == "__main__":
    sys.exit(main())
