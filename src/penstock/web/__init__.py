"""HTTP for a Penstock app: serve a table of endpoints. Needs the extra `api`.

It has no endpoint of its own: `api` passes in those of the kernel and of the domains.
"""

from penstock.web.asgi import create_app
from penstock.web.server import serve

__all__ = ["create_app", "serve"]
