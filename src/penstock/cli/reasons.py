"""Print why an item or a lane does not run, for `item why` and `lane why`."""

from collections.abc import Sequence
from dataclasses import asdict

from penstock.console.output import print_json, print_lines
from penstock.kernel.why import Reason


def print_reasons(reasons: Sequence[Reason], *, as_json: bool) -> None:
    """Print one reason per line: its code and its sentence, or JSON with its data."""
    if not as_json:
        print_lines([[each.code, each.sentence] for each in reasons])
        return
    for each in reasons:
        print_json(asdict(each))
