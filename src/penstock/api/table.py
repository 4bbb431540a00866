"""The table of endpoints: the kernel's here, and the domains' from the app."""

from dataclasses import replace

from penstock import web
from penstock.api import audit, dead, decisions, health, items, keys, lanes, workers
from penstock.api.metrics import MetricsPage
from penstock.api.static_pages import StaticPages, redirect_to_docs
from penstock.app import Penstock
from penstock.base.settings import settings
from penstock.compose.domains import KERNEL
from penstock.contract.conflicts import check_endpoints
from penstock.contract.http import Endpoint, endpoint
from penstock.web.request_wrapper import RequestWrapper, is_for_probes

APP = "app"  # Whose endpoints have no tag: those that were given to the app itself.
TAGS = {"lanes", "items", "dead", "workers", "keys", "audit", "health"}  # First words of paths.


def create_app(penstock: Penstock, *, is_health_only: bool = False) -> RequestWrapper:
    """Return the API of an app as an ASGI app; `penstock` is open while it serves requests.

    With `is_health_only` it has health and metrics alone: for workers, beside an API elsewhere.
    """
    return web.create_app(penstock, endpoints(penstock, is_health_only=is_health_only))


def endpoints(penstock: Penstock, *, is_health_only: bool = False) -> tuple[Endpoint, ...]:
    """Return the endpoints of the kernel and of the app's domains; raises BadDomain if two are one.

    An app gives the endpoints of a domain the domain's name as their tag.
    """
    pages = StaticPages()
    kernel = _kernel_endpoints(pages, settings().payload_bytes_max)
    check_endpoints(
        [
            *((KERNEL.name, each) for each in kernel),
            *((each.tag or APP, each) for each in penstock.endpoints),
        ]
    )
    table = (*kernel, *penstock.endpoints)
    if is_health_only:
        return tuple(each for each in table if is_for_probes(each.path))
    pages.table = table
    return table


def _kernel_endpoints(pages: StaticPages, payload_bytes_max: int) -> tuple[Endpoint, ...]:
    """Return every endpoint that is not a domain's, tagged by the first word of its path.

    `payload_bytes_max` is the limit of new lanes, and bounds the bodies of items. JSON may write a
    character in six bytes that is stored in two or three, hence the factor.
    """
    one_item = 2 * payload_bytes_max + 64 * 1024
    batch = max(16 * 1024 * 1024, one_item)
    metrics = MetricsPage()
    table = (
        endpoint(
            "GET", "/health", health.show, scope=None, statuses=(200, 503),
            summary="Whether this process is alive and can serve requests",
        ),
        endpoint(
            "GET", "/health/live", health.show_live, scope=None,
            summary="Whether this process is alive",
        ),
        endpoint(
            "GET", "/health/ready", health.show, scope=None, statuses=(200, 503),
            summary="Whether this process can serve requests",
        ),
        endpoint("GET", "/lanes", lanes.list_all, scope="read", summary="List the lanes"),
        endpoint("GET", "/lanes/{name}", lanes.show, scope="read", summary="Show a lane"),
        endpoint(
            "GET", "/lanes/{name}/why", lanes.why, scope="read",
            summary="Show what keeps a lane from running items",
        ),
        endpoint(
            "PUT", "/lanes/{name}", lanes.put, scope="admin", statuses=(200, 201),
            summary="Create a lane (201), or set its policy (200)",
        ),
        endpoint(
            "PATCH", "/lanes/{name}", lanes.patch, scope="admin",
            summary="Change a part of a lane's policy",
        ),
        endpoint(
            "POST", "/lanes/{name}/pause", lanes.pause, scope="admin",
            summary="Stop claims from a lane",
        ),
        endpoint(
            "POST", "/lanes/{name}/resume", lanes.resume, scope="admin",
            summary="Allow claims from a lane again",
        ),
        endpoint(
            "POST", "/items", items.accept, scope="produce", statuses=(202,),
            takes_headers=(items.IDEMPOTENCY_KEY,), body_bytes_max=one_item,
            summary="Accept an item",
        ),
        endpoint(
            "POST", "/items/batch", items.accept_many, scope="produce", statuses=(202,),
            body_bytes_max=batch,
            summary="Accept 1 to 1,000 items of any lanes, all or none",
        ),
        endpoint(
            "GET", "/items", items.list_page, scope="read",
            summary="List a lane's items, the newest first",
        ),
        endpoint(
            "GET", "/items/by-key", items.show_by_key, scope="read",
            summary="Show the item with a key",
        ),
        endpoint(
            "GET", "/items/{item_id}", items.show, scope="read",
            summary="Show an item with its payload and attempts",
        ),
        endpoint(
            "GET", "/items/{item_id}/why", items.why, scope="read",
            summary="Show why an item has not run",
        ),
        endpoint(
            "POST", "/items/{item_id}/cancel", items.cancel, scope="admin",
            summary="Cancel an item that no worker holds",
        ),
        endpoint(
            "POST", "/items/{item_id}/retry", items.retry, scope="admin",
            summary="Give a dead item another set of attempts",
        ),
        endpoint(
            "POST", "/items/{item_id}/reschedule", items.reschedule, scope="admin",
            summary="Give an item that no worker holds another due instant",
        ),
        endpoint(
            "POST", "/items/{item_id}/hold", decisions.hold, scope="admin",
            summary="Hold a waiting item until it is released, resolved or cancelled",
        ),
        endpoint(
            "POST", "/items/{item_id}/release", decisions.release, scope="admin",
            summary="Try a held item again, with another set of attempts",
        ),
        endpoint(
            "POST", "/items/{item_id}/resolve", decisions.resolve, scope="admin",
            summary="End a held item as done, with a result, or as dead",
        ),
        endpoint(
            "POST", "/items/{item_id}/skip", decisions.skip, scope="admin",
            summary="End the head of an order key as dead, so that the next item follows",
        ),
        endpoint(
            "POST", "/items/hold", decisions.hold_many, scope="admin",
            summary="Hold the waiting items that match, or with `dry_run` count them",
        ),
        endpoint(
            "POST", "/items/release", decisions.release_many, scope="admin",
            summary="Release the held items that match, or with `dry_run` count them",
        ),
        endpoint(
            "POST", "/items/resolve", decisions.resolve_many, scope="admin",
            summary="Resolve the held items that match, or with `dry_run` count them",
        ),
        endpoint(
            "POST", "/items/skip", decisions.skip_many, scope="admin",
            summary="Skip the heads of order keys that match, or with `dry_run` count them",
        ),
        endpoint(
            "GET", "/dead", dead.list_page, scope="read",
            summary="List dead letters, the oldest first",
        ),
        endpoint(
            "POST", "/dead/replay", dead.replay, scope="admin", statuses=(200, 202),
            summary="Start a replay of dead letters (202), or with `dry_run` count them (200)",
        ),
        endpoint(
            "GET", "/dead/replays", dead.list_replays, scope="read",
            summary="List the latest replays of dead letters",
        ),
        endpoint(
            "GET", "/dead/replays/{replay_id}", dead.show_replay, scope="read",
            summary="Show the progress of a replay of dead letters",
        ),
        endpoint(
            "GET", "/workers", workers.list_all, scope="read",
            summary="List the workers, with their lanes and when each was last seen",
        ),
        endpoint("GET", "/keys", keys.list_all, scope="admin", summary="List API keys"),
        endpoint(
            "POST", "/keys", keys.create, scope="admin", statuses=(201,),
            summary="Create an API key; its token is in this response only",
        ),
        endpoint(
            "DELETE", "/keys/{key_id}", keys.revoke, scope="admin", statuses=(204,),
            summary="Revoke an API key",
        ),
        endpoint(
            "GET", "/audit", audit.list_page, scope="admin",
            summary="List changes, the newest first: who, when, before, after",
        ),
        *(
            endpoint(
                "GET", path, metrics.show, scope="read", media_type="text/plain",
                summary="Metrics for Prometheus",
            )
            for path in ("/metrics", "/q/metrics")
        ),
        endpoint(
            "GET", "/openapi.json", pages.show_openapi, scope="read",
            summary="OpenAPI description of this API",
        ),
        endpoint(
            "GET", "/docs", pages.show_docs, scope="read", media_type="text/html",
            summary="The same description as a page for people",
        ),
        endpoint(
            "GET", "/", redirect_to_docs, scope="read", statuses=(307,), media_type="text/html",
            summary="Redirect to `/docs`",
        ),
    )  # fmt: skip
    return tuple(replace(each, tag=_tag(each.path)) for each in table)


def _tag(path: str) -> str | None:
    first = path.split("/")[1]
    return first if first in TAGS else None
