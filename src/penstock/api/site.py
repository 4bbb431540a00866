"""The app: each call is found in the table, authorised, decoded, handled and encoded alike."""

from dataclasses import dataclass

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request

from penstock.api.auth import Door
from penstock.api.call import Call, Site
from penstock.api.docs import render_docs
from penstock.api.envelope import Answer, Envelope, is_for_probes, note_caller, note_route
from penstock.api.intake import BODY_TIMEOUT, read_body, read_parameters
from penstock.api.metrics import Depths
from penstock.api.openapi import describe_api
from penstock.api.problem import tell_http, tell_ours, tell_unexpected
from penstock.api.routes import Routes, read_routes
from penstock.api.table import endpoints
from penstock.app import Penstock
from penstock.base.errors import PenstockError
from penstock.base.settings import settings
from penstock.base.watchdog import Watchdog
from penstock.contract.http import Content, Endpoint, Reply
from penstock.postgres.pool import database_away

NOBODY = "nobody"  # Who calls what needs no key.


def create_app(penstock: Penstock, *, is_probe: bool = False) -> Envelope:
    """Return an ASGI app over an app that is open while requests come in.

    A probe has nothing but health and metrics: for workers, beside an API elsewhere.
    """
    table = (*endpoints(settings().payload_bytes_max), *penstock.endpoints)
    if is_probe:
        table = tuple(each for each in table if is_for_probes(each.path))
    document = describe_api(table)
    site = Site(
        penstock=penstock,
        door=Door(penstock),
        depths=Depths(),
        openapi=msgspec.json.encode(document),
        docs=render_docs(document).encode(),
    )
    app = _App(site=site, routes=read_routes(table), slow_bodies=Watchdog(BODY_TIMEOUT))
    # Bound once: structlog would otherwise look its configuration up for every line.
    return Envelope(app.answer, tell_unexpected, penstock.log.bind())


@dataclass(frozen=True, slots=True, kw_only=True)
class _App:
    """The table with what its handlers share."""

    site: Site
    routes: Routes
    slow_bodies: Watchdog

    async def answer(self, request: Request) -> Answer:
        """Carry out one request; what is refused is an answer too."""
        try:
            endpoint, in_path = self.routes.find(request.scope["path"], request.method)
            note_route(request, endpoint.path)
            with database_away():
                who = await self._admit(endpoint, request)
                call = Call(
                    site=self.site,
                    request=request,
                    parameters=read_parameters(endpoint, in_path, request),
                    body=await read_body(endpoint, request, self.slow_bodies),
                    who=who,
                )
                return _encoded(endpoint, await endpoint.handle(call))
        except PenstockError as refused:
            return tell_ours(request, refused)
        except HTTPException as refused:
            return tell_http(request, refused)

    async def _admit(self, endpoint: Endpoint, request: Request) -> str:
        """Return who calls. Who may not ask is told so before anything of the body is read."""
        if endpoint.scope is None:
            return NOBODY
        key = await self.site.door.authorize(request, endpoint.scope)
        note_caller(request, key.key_id)
        return f"key:{key.key_id}"


def _encoded(endpoint: Endpoint, answer: object) -> Answer:
    status, value = endpoint.statuses[0], answer
    if isinstance(answer, Reply):
        status, value = answer.status, answer.value  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    assert status in endpoint.statuses, f"{endpoint.path} does not list {status}"
    if value is None:
        return Answer(status=status)
    if isinstance(value, Content):
        return Answer(
            status=status, body=value.body, media_type=value.media_type, headers=value.headers
        )
    body = msgspec.json.encode(value)
    return Answer(status=status, body=body, media_type=endpoint.media_type)
