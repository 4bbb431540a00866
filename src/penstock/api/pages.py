"""What is not JSON about a lane or an item: metrics, the OpenAPI document, and pages for people."""

from starlette.responses import RedirectResponse, Response

from penstock.api import metrics, wire
from penstock.api.call import Call

# The page brings its own style and nothing else: no script, no picture, no other host.
DOCS_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"


async def show_metrics(call: Call[wire.NoParameters, None]) -> Response:
    """Render the metrics."""
    penstock = call.site.penstock
    text = metrics.render(penstock.meter, await call.site.depths.read(penstock.pool))
    return Response(text, media_type=metrics.CONTENT_TYPE)


async def show_openapi(call: Call[wire.NoParameters, None]) -> Response:
    """Give the OpenAPI document."""
    return Response(call.site.openapi, media_type="application/json")


async def show_docs(call: Call[wire.NoParameters, None]) -> Response:
    """Give the documentation page."""
    headers = {"Content-Security-Policy": DOCS_POLICY}
    return Response(call.site.docs, media_type="text/html", headers=headers)


async def go_to_docs(_call: Call[wire.NoParameters, None]) -> Response:
    """Lead somebody who types the bare address to the documentation."""
    return RedirectResponse("/docs")
