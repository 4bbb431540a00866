"""HTTP for a Penstock app: serve a table of endpoints. Needs the extra `api`.

It knows no endpoint of its own: `api` hands in the kernel's endpoints and those of the domains.
"""

from penstock.web.asgi import create_app
from penstock.web.server import serve

__all__ = ["create_app", "serve"]
