"""The client is a library of its own: it needs errors and permits of Penstock, and nothing else."""

import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[3] / "src" / "penstock"

# An empty package in place of `penstock/__init__.py`, which imports the whole application.
IMPORT_ALONE = f"""
import sys, types
penstock = types.ModuleType("penstock")
penstock.__path__ = [{str(SOURCE)!r}]
sys.modules["penstock"] = penstock
import penstock.integrations.http_client
print(*sorted(name for name in sys.modules if name.startswith("penstock.")))
"""


def test_the_client_imports_only_errors_and_permits_of_penstock() -> None:
    """It can be used, profiled and replaced without the application."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALONE], check=True, capture_output=True, text=True
    )

    imported = set(done.stdout.split())
    package = "penstock.integrations.http_client"
    assert package in imported
    assert {name for name in imported if not name.startswith(package)} == {
        "penstock.base",
        "penstock.base.errors",
        "penstock.base.permits",
        "penstock.integrations",
    }
