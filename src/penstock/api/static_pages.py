"""The OpenAPI document and the documentation page, rendered once when the API is created."""

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from penstock.contract.http import Content, Endpoint, NoParameters, Reply
from penstock.web.call import WebCall
from penstock.web.docs_page import render_docs
from penstock.web.openapi import describe_api

# The page has its own style and nothing else: no script, no picture, no other host.
DOCS_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"


@dataclass(slots=True)
class StaticPages:
    """The rendered pages; empty until `render`, because the table that they show lists them too."""

    openapi: bytes = b""
    docs: bytes = b""

    def render(self, table: Iterable[Endpoint]) -> None:
        """Describe a table of endpoints."""
        document = describe_api(table)
        self.openapi = msgspec.json.encode(document)
        self.docs = render_docs(document).encode()

    async def show_openapi(self, _call: WebCall[NoParameters, None]) -> Content:
        """Return the OpenAPI document."""
        return Content(body=self.openapi, media_type="application/json")

    async def show_docs(self, _call: WebCall[NoParameters, None]) -> Content:
        """Return the documentation page."""
        headers = {"Content-Security-Policy": DOCS_POLICY}
        return Content(body=self.docs, media_type="text/html", headers=headers)


async def redirect_to_docs(_call: WebCall[NoParameters, None]) -> Reply[Content]:
    """Redirect from the bare address to the documentation."""
    content = Content(body=b"", media_type="text/html", headers={"Location": "/docs"})
    return Reply(content, 307)
