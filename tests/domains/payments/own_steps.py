"""The app with a step of its own that the how-to page shows, as tests run it."""

from pathlib import Path

from tests.docs.pages import ROOT, blocks_of

PAGE = ROOT / "docs/howto/schedule-payments.md"
BLOCKED_IBAN = "GB33BUKB20201555555555"


def write_ours(folder: Path) -> str:
    """Write the page's program into a folder; return what `--app` takes."""
    (block,) = (each for each in blocks_of(PAGE, "python") if "OUR_PAYMENTS" in each.code)
    (folder / "ours.py").write_text(block.code, encoding="utf-8")
    return "ours:app"
