"""Record the texts of functions in `functions/history.json` of their package, as checksums.

It shows a release whether the text in a database is older or newer than its own. After a
change of a function: `python -m penstock.postgres.history PACKAGE`.
"""

import json
import sys
from importlib.resources import files
from pathlib import Path

from penstock.postgres.functions import read_functions, read_history


def record_history(package: str) -> None:
    """Append the checksums of texts that have changed; names that are gone keep theirs."""
    history = read_history(package)
    for each in read_functions(package):
        texts = history.setdefault(each.name, [])
        if texts[-1:] != [each.checksum]:
            texts.append(each.checksum)
    file = Path(str(files(package) / "functions" / "history.json"))
    file.write_text(json.dumps(history, indent=2, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    for package in sys.argv[1:]:
        record_history(package)
