"""The REST API: an app over one Penstock, and a server for it. Needs the extra `api`."""

from penstock.api.server import serve
from penstock.api.site import create_app

__all__ = ["create_app", "serve"]
