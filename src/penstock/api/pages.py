"""What is not JSON about a lane or an item: metrics, the OpenAPI document, and pages for people."""

from penstock.api import metrics
from penstock.api.call import Call
from penstock.contract.http import Content, NoParameters, Reply

# The page brings its own style and nothing else: no script, no picture, no other host.
DOCS_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"


async def show_metrics(call: Call[NoParameters, None]) -> Content:
    """Render the metrics."""
    penstock = call.site.penstock
    text = metrics.render(penstock.meter, await call.site.depths.read(penstock.pool))
    return Content(body=text, media_type=metrics.CONTENT_TYPE)


async def show_openapi(call: Call[NoParameters, None]) -> Content:
    """Give the OpenAPI document."""
    return Content(body=call.site.openapi, media_type="application/json")


async def show_docs(call: Call[NoParameters, None]) -> Content:
    """Give the documentation page."""
    headers = {"Content-Security-Policy": DOCS_POLICY}
    return Content(body=call.site.docs, media_type="text/html", headers=headers)


async def go_to_docs(_call: Call[NoParameters, None]) -> Reply[Content]:
    """Lead somebody who types the bare address to the documentation."""
    content = Content(body=b"", media_type="text/html", headers={"Location": "/docs"})
    return Reply(content, 307)
