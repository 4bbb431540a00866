"""A folder with an app, and the gates of its items."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

APP = Path(__file__).with_name("gated.py")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the app `gated:app`, to start processes in."""
    shutil.copy(APP, tmp_path / "gated.py")
    return tmp_path


@pytest.fixture
def gate(folder: Path) -> Callable[[int], Path]:
    """Build the gate of an item; writing to it opens it, reading from it waits."""

    def build(payload: int) -> Path:
        path = folder / f"gate-{payload}"
        os.mkfifo(path)
        return path

    return build
