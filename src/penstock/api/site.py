"""The app: routes made from the table, each call authorised, decoded, handled and encoded alike."""

from collections.abc import Iterable, Mapping

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.api.auth import authorize
from penstock.api.call import Call, Endpoint, Reply, Site
from penstock.api.docs import render_docs
from penstock.api.envelope import Envelope, note_caller, note_route
from penstock.api.intake import read_body, read_parameters
from penstock.api.metrics import Depths
from penstock.api.openapi import describe_api
from penstock.api.problem import tell_http, tell_ours, tell_unexpected
from penstock.api.table import endpoints
from penstock.app import Penstock
from penstock.base.errors import PenstockError
from penstock.base.settings import settings
from penstock.postgres.pool import database_away

NOBODY = "nobody"  # Who calls what needs no key.


def create_app(penstock: Penstock) -> Starlette:
    """Return an ASGI app over an app that is open while requests come in."""
    table = endpoints(settings().payload_bytes_max)
    document = describe_api(table)
    site = Site(
        penstock=penstock,
        depths=Depths(),
        openapi=msgspec.json.encode(document),
        docs=render_docs(document).encode(),
    )
    app = Starlette(
        routes=list(_routes(table, site)),
        middleware=[Middleware(Envelope, log=penstock.log)],
        exception_handlers={
            PenstockError: tell_ours,
            HTTPException: tell_http,
            Exception: tell_unexpected,
        },
    )
    app.router.redirect_slashes = False  # A POST that is redirected is a POST that is lost.
    return app


def _routes(table: Iterable[Endpoint], site: Site) -> Iterable[Route]:
    """Yield one route per path, so that a wrong method is answered with all the right ones."""
    by_path: dict[str, dict[str, Endpoint]] = {}
    for each in table:
        by_path.setdefault(each.path, {})[each.method] = each
    for path, by_method in by_path.items():
        yield Route(path, _handler(by_method, site), methods=list(by_method))


def _handler(by_method: Mapping[str, Endpoint], site: Site):  # noqa: ANN202  As Starlette has it.
    async def handle(request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        return await _answer(by_method[method], site, request)

    return handle


async def _answer(endpoint: Endpoint, site: Site, request: Request) -> Response:
    """Carry out one request. Who may not ask is told so before anything of the body is read."""
    note_route(request, endpoint.path)
    with database_away():
        who = NOBODY
        if endpoint.scope is not None:
            key = await authorize(site.penstock.pool, request, endpoint.scope)
            note_caller(request, key.key_id)
            who = f"key:{key.key_id}"
        call = Call(
            site=site,
            parameters=read_parameters(endpoint, request),
            body=await read_body(endpoint, request),
            headers=request.headers,
            who=who,
        )
        answer = await endpoint.handle(call)
    return _encoded(endpoint, answer)


def _encoded(endpoint: Endpoint, answer: object) -> Response:
    if isinstance(answer, Response):
        return answer
    status, value = endpoint.statuses[0], answer
    if isinstance(answer, Reply):
        status, value = answer.status, answer.value  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    assert status in endpoint.statuses, f"{endpoint.path} does not list {status}"
    if value is None:
        return Response(status_code=status)
    content = msgspec.json.encode(value)
    return Response(content, status_code=status, media_type=endpoint.media_type)
