"""What a long-running process sets up before it starts."""

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.console.process import OPEN_FILES

# In a separate process, whose limit is lowered first.
OPENED = """
import resource
from pathlib import Path
from penstock.console.process import allow_open_files
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (128, most))
allow_open_files()
status = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0], most, int(status["FDSize"]))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_the_limit_of_open_files_is_raised_and_their_table_enlarged() -> None:
    printed = subprocess.run(
        (sys.executable, "-c", OPENED), capture_output=True, text=True, check=True
    )

    allowed, most, table = map(int, printed.stdout.split())
    wanted = OPEN_FILES if most == -1 else min(most, OPEN_FILES)
    assert allowed == wanted
    assert table >= wanted
