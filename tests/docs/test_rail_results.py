"""The shell commands with which a page signs the report of a rail make a valid signature."""

import shutil
import subprocess
from datetime import UTC, datetime

import pytest

from penstock.domains.outbox.reconcile.results import verify
from tests.docs.pages import ROOT, blocks_of

PAGE = ROOT / "docs" / "howto" / "rail-results.md"
SECRET = "a secret of the bank"
# Line ends and letters outside ASCII: what is signed are bytes.
BODY = '{"rail_type": "bank",\n "status": "settled", "reference": "Büro-17"}'
# In place of the program: it prints its arguments, each with a NUL behind it.
CURL = "curl() { printf '%s\\0' \"$@\"; }\n"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_the_signature_of_the_shell_commands_is_valid() -> None:
    """A rail's engineer copies them, and has no other way to find out what is wrong."""
    (commands,) = blocks_of(PAGE, "bash")

    ran = subprocess.run(
        ["bash", "-euc", CURL + commands.code],
        env={
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "SECRET": SECRET,
            "BODY": BODY,
            "PENSTOCK_URL": "http://127.0.0.1:8000",
        },
        capture_output=True,
        check=True,
    )

    arguments = ran.stdout.decode().split("\0")
    (header,) = [each for each in arguments if each.startswith("Penstock-Signature: ")]
    body = arguments[arguments.index("--data-binary") + 1].encode()
    signature = header.removeprefix("Penstock-Signature: ")
    assert verify(signature, body, SECRET, now=datetime.now(UTC)) is None
    assert verify(signature, body + b" ", SECRET, now=datetime.now(UTC)) is not None
