"""A Postfix of the test's own: it receives on loopback, has one mailbox, and discards the rest."""

import asyncio
import os
import pwd
import shutil
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import trustme

# A mailbox is a folder that is owned by this account; the mails are files in new/.
ACCOUNT = "nobody"
MAILBOX = "ada@box.test"

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
virtual_mailbox_domains = box.test
virtual_mailbox_base = {folder}/boxes
virtual_mailbox_maps = inline:{{ {{ {mailbox} = ada/ }} }}
virtual_uid_maps = static:{uid}
virtual_gid_maps = static:{gid}
smtpd_tls_security_level = may
smtpd_tls_chain_files = {folder}/etc/tls.pem
smtpd_tls_received_header = yes
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
virtual unix - n n - - virtual
tlsmgr unix - - n 1000? 1 tlsmgr
anvil unix - - n - 1 anvil
proxymap unix - - n - - proxymap
"""


def reason_to_skip() -> str | None:
    """Return why Postfix cannot be started here, or None."""
    if not Path("/usr/lib/postfix/sbin/smtpd").exists():
        return "Postfix is not installed"
    return None if os.geteuid() == 0 else "Postfix starts only as root"


@asynccontextmanager
async def postfix(port: int) -> AsyncGenerator[Path]:
    """Run Postfix, and yield the folder of its mailbox.

    Its own folder is open to its accounts, which folders of pytest are not.
    """
    folder = Path(tempfile.mkdtemp(prefix="penstock-postfix-"))
    folder.chmod(0o755)
    for name in ("etc", "spool", "data", "boxes"):
        (folder / name).mkdir()
    shutil.chown(folder / "data", "postfix")
    shutil.chown(folder / "boxes", ACCOUNT)
    account = pwd.getpwnam(ACCOUNT)
    (folder / "etc" / "main.cf").write_text(
        MAIN.format(folder=folder, mailbox=MAILBOX, uid=account.pw_uid, gid=account.pw_gid)
    )
    (folder / "etc" / "master.cf").write_text(MASTER.format(port=port))
    certificate = trustme.CA().issue_cert("127.0.0.1")
    certificate.private_key_and_cert_chain_pem.write_to_path(folder / "etc" / "tls.pem")
    try:
        await _control(folder, "start")
        yield folder / "boxes" / "ada" / "new"
    finally:
        await _control(folder, "stop")
        shutil.rmtree(folder)


async def _control(folder: Path, verb: str) -> None:
    process = await asyncio.create_subprocess_exec(
        "/usr/sbin/postfix", "-c", str(folder / "etc"), verb, stderr=asyncio.subprocess.DEVNULL
    )
    assert await process.wait() == 0, f"postfix {verb} failed"
