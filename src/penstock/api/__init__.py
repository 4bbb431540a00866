"""The REST API: the kernel's endpoints, those of the domains, and the pages that describe them.

`web` serves them. Needs the extra `api`.
"""

from penstock.api.table import create_app, endpoints

__all__ = ["create_app", "endpoints"]
