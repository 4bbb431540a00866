"""What a long-running process sets up before it starts."""

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli.lifetime import OPEN_FILES

# In a process of its own, which has few files allowed and may have more.
OPENED = """
import resource
from pathlib import Path
from penstock.cli.lifetime import allow_open_files
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (128, most))
allow_open_files()
status = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0], most, int(status["FDSize"]))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="there is no /proc")
def test_as_many_files_as_calls_may_be_opened_and_the_table_need_not_grow() -> None:
    told = subprocess.run(
        (sys.executable, "-c", OPENED), capture_output=True, text=True, check=True
    )

    allowed, most, table = map(int, told.stdout.split())
    wanted = OPEN_FILES if most == -1 else min(most, OPEN_FILES)
    assert allowed == wanted
    assert table >= wanted
