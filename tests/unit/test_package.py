"""What `import penstock` offers, and when it is loaded."""

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import penstock

SOURCE = Path(penstock.__file__)


def declared() -> dict[str, str]:
    """Return the modules of the names that type checkers see."""
    imports = (
        node for node in ast.walk(ast.parse(SOURCE.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("penstock.")
    )  # fmt: skip
    return {name.name: node.module or "" for node in imports for name in node.names}


def test_the_package_offers_what_type_checkers_see() -> None:
    """Names are found by a table at run time; a name in one place only would fail in the other."""
    homes = declared()

    assert sorted(homes) == penstock.__all__
    for name, home in homes.items():
        assert getattr(penstock, name) is getattr(import_module(home), name)


def test_every_name_is_listed_before_its_first_use() -> None:
    """Shells complete names from `dir`."""
    code = "import penstock; assert {*penstock.__all__} <= {*dir(penstock)}"

    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_name_that_the_package_does_not_offer_is_an_attribute_error() -> None:
    """`hasattr` and `from penstock import …` depend on it."""
    with pytest.raises(AttributeError, match="module 'penstock' has no attribute 'Celery'"):
        _ = penstock.Celery  # pyright: ignore[reportAttributeAccessIssue]
