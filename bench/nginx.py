"""nginx as the endpoint: it answers faster than anything here can post."""

import contextlib
import re
import shutil
import socket
import tempfile
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final

from bench.environment import Unavailable
from bench.process import running

# One worker, on the core that is left. It says on standard error when it listens.
CONFIG: Final = """\
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log stderr notice;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    keepalive_requests 1000000000;
    keepalive_timeout 1h;
    client_body_buffer_size 16k;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        location / {{ return 200 "ok"; }}
    }}
}}
"""
READY: Final = re.compile(rb"start worker process ")
DEBIAN: Final = "/usr/sbin/nginx"  # where it is, and where only root's PATH looks


@contextlib.asynccontextmanager
async def nginx() -> AsyncGenerator[str]:
    """Run nginx on a free port of loopback, and give its URL."""
    binary = shutil.which("nginx") or shutil.which(DEBIAN)
    if binary is None:
        raise Unavailable("needs nginx, not found on this machine (apt-get install nginx-light)")
    with tempfile.TemporaryDirectory(prefix="pbench-nginx-") as folder:
        port = free_port()
        config = Path(folder) / "nginx.conf"
        config.write_text(CONFIG.format(folder=folder, port=port))
        # Without -e it opens the log of the system's nginx before it reads the config.
        command = (binary, "-e", "stderr", "-p", folder, "-c", str(config))
        async with running(command, {}, ready=READY):
            yield f"http://127.0.0.1:{port}/"


def free_port() -> int:
    """Return a port of loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
