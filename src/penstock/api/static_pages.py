"""The OpenAPI document and the documentation page, each rendered when it is first asked for.

Rendering takes 25 ms, which a start need not wait for.
"""

import asyncio
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
    """The pages about a table of endpoints, which is set afterwards because it lists them too."""

    table: Iterable[Endpoint] = ()
    openapi: bytes = b""
    docs: bytes = b""

    async def show_openapi(self, _call: WebCall[NoParameters, None]) -> Content:
        """Return the OpenAPI document."""
        if not self.openapi:
            self.openapi = await asyncio.to_thread(self._render_openapi)
        return Content(body=self.openapi, media_type="application/json")

    async def show_docs(self, _call: WebCall[NoParameters, None]) -> Content:
        """Return the documentation page."""
        if not self.docs:
            self.docs = await asyncio.to_thread(self._render_docs)
        headers = {"Content-Security-Policy": DOCS_POLICY}
        return Content(body=self.docs, media_type="text/html", headers=headers)

    def _render_openapi(self) -> bytes:
        return msgspec.json.encode(describe_api(self.table))

    def _render_docs(self) -> bytes:
        return render_docs(describe_api(self.table)).encode()


async def redirect_to_docs(_call: WebCall[NoParameters, None]) -> Reply[Content]:
    """Redirect from the bare address to the documentation."""
    content = Content(body=b"", media_type="text/html", headers={"Location": "/docs"})
    return Reply(content, 307)
