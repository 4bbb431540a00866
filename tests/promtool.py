"""Prometheus' own tool for rules, on the rules of this repository."""

import shutil
import subprocess

import pytest

from tests.docs.pages import ROOT

FOLDER = ROOT / "deploy" / "alerts"
SECONDS_MAX = 60

PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(
    PROMTOOL is None, reason="promtool is not installed; Debian's package prometheus has it"
)


def promtool(*arguments: str) -> None:
    """Run it in the folder of the rules; fail with what it says."""
    assert PROMTOOL is not None
    done = subprocess.run(
        [PROMTOOL, *arguments],
        cwd=FOLDER,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
