"""A Postfix of the test's own: it receives on loopback and discards what it has queued."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

MAIN = """\
compatibility_level = 3.6
queue_directory = {folder}/spool
data_directory = {folder}/data
command_directory = /usr/sbin
daemon_directory = /usr/lib/postfix/sbin
mail_owner = postfix
setgid_group = postdrop
inet_interfaces = loopback-only
inet_protocols = ipv4
myhostname = relay.test
mydestination = relay.test
local_recipient_maps = inline:{{one=x two=x}}
local_transport = discard:
default_transport = discard:
mynetworks = 127.0.0.0/8
smtpd_recipient_limit = 2
message_size_limit = 100000
maillog_file = {folder}/log
maillog_file_prefixes = {folder}
"""

MASTER = """\
127.0.0.1:{port} inet n - n - - smtpd
postlog unix-dgram n - n - 1 postlogd
cleanup unix n - n - 0 cleanup
qmgr unix n - n 300 1 qmgr
rewrite unix - - n - - trivial-rewrite
bounce unix - - n - 0 bounce
defer unix - - n - 0 bounce
trace unix - - n - 0 bounce
discard unix - - n - - discard
anvil unix - - n - 1 anvil
proxymap unix - - n - - proxymap
"""


def reason_to_skip() -> str | None:
    """Return why Postfix cannot be started here, or None."""
    if not Path("/usr/lib/postfix/sbin/smtpd").exists():
        return "Postfix is not installed"
    return None if os.geteuid() == 0 else "Postfix starts only as root"


@asynccontextmanager
async def postfix(port: int) -> AsyncGenerator[None]:
    """Run Postfix; its folder is open to its own account, which folders of pytest are not."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-postfix-"))
    folder.chmod(0o755)
    for name in ("etc", "spool", "data"):
        (folder / name).mkdir()
    shutil.chown(folder / "data", "postfix")
    (folder / "etc" / "main.cf").write_text(MAIN.format(folder=folder))
    (folder / "etc" / "master.cf").write_text(MASTER.format(port=port))
    try:
        await _control(folder, "start")
        yield
    finally:
        await _control(folder, "stop")
        shutil.rmtree(folder)


async def _control(folder: Path, verb: str) -> None:
    process = await asyncio.create_subprocess_exec(
        "/usr/sbin/postfix", "-c", str(folder / "etc"), verb, stderr=asyncio.subprocess.DEVNULL
    )
    assert await process.wait() == 0, f"postfix {verb} failed"
