"""Examples of several files can be run on one database: each has payment ids of its own."""

import re
from collections import defaultdict

from tests.docs.pages import ROOT

FILES = [*sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").rglob("*.py"))]
RENT = re.compile(r"rent-\d{4}-\d\d")


def test_no_two_files_use_one_payment_id() -> None:
    """The second one that a reader tries would be refused as a conflict."""
    users: defaultdict[str, set[str]] = defaultdict(set)
    for file in FILES:
        for payment_id in RENT.findall(file.read_text(encoding="utf-8")):
            users[payment_id].add(file.relative_to(ROOT).as_posix())

    assert users, "the examples pay rents"
    assert {name: files for name, files in users.items() if len(files) > 1} == {}
