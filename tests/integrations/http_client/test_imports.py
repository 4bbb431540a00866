"""The client is a library of its own: of Penstock it needs clock, errors and permits only."""

import subprocess
import sys

IMPORT = """
import sys
import penstock.integrations.http_client
print(*sorted(sys.modules))
"""


def imported() -> set[str]:
    """Return the modules that a new interpreter has loaded after the import of the client."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORT], check=True, capture_output=True, text=True
    )
    return set(done.stdout.split())


def test_the_client_imports_only_clock_errors_and_permits_of_penstock() -> None:
    """It can be used, profiled and replaced without the application."""
    package = "penstock.integrations.http_client"

    ours = {name for name in imported() if name.partition(".")[0] == "penstock"}

    assert package in ours
    assert {name for name in ours if not name.startswith(package)} == {
        "penstock",
        "penstock.base",
        "penstock.base.clock",
        "penstock.base.errors",
        "penstock.base.permits",
        "penstock.integrations",
    }


def test_the_client_loads_no_package_of_the_application() -> None:
    """A script that sends one request does not wait for a database driver to load."""
    packages = {name.partition(".")[0] for name in imported()}

    assert "httptools" in packages
    assert not packages & {"asyncpg", "click", "pydantic", "rich", "structlog"}
