"""The ASGI app: each request is routed, authorised, decoded, handled and encoded in one place."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request

from penstock.app import Penstock
from penstock.base.errors import PenstockError
from penstock.base.watchdog import Watchdog
from penstock.contract.http import Content, Endpoint, Reply
from penstock.postgres.errors import DatabaseFull
from penstock.postgres.pool import database_away
from penstock.web.authenticate import Authenticator
from penstock.web.call import WebCall, WebContext
from penstock.web.decode import BODY_TIMEOUT, decode_body, decode_parameters
from penstock.web.problem import bug_response, error_response, http_response
from penstock.web.request_wrapper import RequestWrapper, Response, note_caller, note_route
from penstock.web.routes import Routes, read_routes

NOBODY = "nobody"  # The caller of an endpoint that needs no key.
NO_HEADERS: Mapping[str, str] = {}


def create_app(penstock: Penstock, endpoints: Iterable[Endpoint]) -> RequestWrapper:
    """Return an ASGI app that serves these endpoints; `penstock` is open while it does."""
    app = _App(
        context=WebContext(penstock=penstock, authenticator=Authenticator(penstock)),
        routes=read_routes(endpoints),
        slow_bodies=Watchdog(BODY_TIMEOUT),
    )
    # Bound once: structlog would otherwise look its configuration up for every line.
    return RequestWrapper(app.respond, bug_response, penstock.log.bind(), penstock.meter)


@dataclass(frozen=True, slots=True, kw_only=True)
class _App:
    """The routes with what their handlers share."""

    context: WebContext
    routes: Routes
    slow_bodies: Watchdog

    async def respond(self, request: Request) -> Response:
        """Carry out one request; a refusal is a response too."""
        try:
            endpoint, in_path = self.routes.find(request.scope["path"], request.method)
            note_route(request, endpoint.path)
            with database_away():
                who = await self._authorize(endpoint, request)
                call = WebCall(
                    context=self.context,
                    request=request,
                    parameters=decode_parameters(endpoint, in_path, request),
                    body=await decode_body(endpoint, request, self.slow_bodies),
                    who=who,
                )
                returned = await endpoint.handle(call)
                if endpoint.method != "GET":
                    self.context.disk.note(is_full=False)
                return _encoded(endpoint, returned)
        except PenstockError as refused:
            if isinstance(refused, DatabaseFull):
                self.context.disk.note(is_full=True)
            return error_response(request, refused)
        except HTTPException as refused:
            return http_response(request, refused)

    async def _authorize(self, endpoint: Endpoint, request: Request) -> str:
        """Return the caller's name for the audit; raises before any of the body is read."""
        if endpoint.scope is None:
            return NOBODY
        key = await self.context.authenticator.authorize(request, endpoint.scope)
        note_caller(request, key.key_id)
        return key.caller


def _encoded(endpoint: Endpoint, returned: object) -> Response:
    status, value, headers = endpoint.statuses[0], returned, NO_HEADERS
    if isinstance(returned, Reply):
        status, value, headers = returned.status, returned.value, returned.headers  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    assert status in endpoint.statuses, f"{endpoint.path} does not list {status}"
    if value is None:
        return Response(status=status, headers=headers)
    if isinstance(value, Content):
        return Response(
            status=status,
            body=value.body,
            media_type=value.media_type,
            headers={**headers, **value.headers},
        )
    body = msgspec.json.encode(value)
    return Response(status=status, body=body, media_type=endpoint.media_type, headers=headers)
