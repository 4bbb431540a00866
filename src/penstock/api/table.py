"""Every endpoint that is not a domain's; routes and OpenAPI are both made from this table."""

from penstock.api import audit, dead, health, items, keys, lanes, pages
from penstock.contract.http import Endpoint, endpoint


def endpoints(payload_bytes_max: int) -> tuple[Endpoint, ...]:
    """Return the table; `payload_bytes_max` is what new lanes take, and bounds the bodies of items.

    JSON may write a character in six bytes that is stored in two or three, hence the factor.
    """
    one_item = 2 * payload_bytes_max + 64 * 1024
    batch = max(16 * 1024 * 1024, one_item)
    return (
        endpoint(
            "GET", "/health", health.show, scope=None, statuses=(200, 503),
            summary="Whether this process lives and can serve requests",
        ),
        endpoint(
            "GET", "/health/live", health.show_live, scope=None,
            summary="Whether this process lives",
        ),
        endpoint(
            "GET", "/health/ready", health.show, scope=None, statuses=(200, 503),
            summary="Whether this process can serve requests",
        ),
        endpoint("GET", "/lanes", lanes.list_all, scope="read", summary="List the lanes"),
        endpoint("GET", "/lanes/{name}", lanes.show, scope="read", summary="Show a lane"),
        endpoint(
            "PUT", "/lanes/{name}", lanes.put, scope="admin", statuses=(200, 201),
            summary="Make a lane, or set its policy",
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
            summary="Let a lane be claimed from again",
        ),
        endpoint(
            "POST", "/items", items.accept, scope="produce", statuses=(202,),
            takes_headers=(items.IDEMPOTENCY_KEY,), body_bytes_max=one_item,
            summary="Accept an item",
        ),
        endpoint(
            "POST", "/items/batch", items.accept_many, scope="produce", statuses=(202,),
            body_bytes_max=batch,
            summary="Accept up to 1,000 items, all or none",
        ),
        endpoint("GET", "/items", items.list_page, scope="read", summary="List a lane's items"),
        endpoint(
            "GET", "/items/by-key", items.show_by_key, scope="read",
            summary="Show the item that a key stands for",
        ),
        endpoint(
            "GET", "/items/{item_id}", items.show, scope="read",
            summary="Show an item with its payload and attempts",
        ),
        endpoint(
            "POST", "/items/{item_id}/cancel", items.cancel, scope="admin",
            summary="End an item that no worker holds",
        ),
        endpoint(
            "POST", "/items/{item_id}/retry", items.retry, scope="admin",
            summary="Give a dead or held item another set of attempts",
        ),
        endpoint(
            "POST", "/items/{item_id}/reschedule", items.reschedule, scope="admin",
            summary="Give an item that no worker holds another due instant",
        ),
        endpoint("GET", "/dead", dead.list_page, scope="read", summary="List dead letters"),
        endpoint(
            "POST", "/dead/replay", dead.replay, scope="admin", statuses=(200, 202),
            summary="Replay dead letters, or count what a replay would bring back",
        ),
        endpoint("GET", "/dead/replays", dead.list_replays, scope="read", summary="List replays"),
        endpoint(
            "GET", "/dead/replays/{replay_id}", dead.show_replay, scope="read",
            summary="Show how far a replay is",
        ),
        endpoint("GET", "/keys", keys.list_all, scope="admin", summary="List API keys"),
        endpoint(
            "POST", "/keys", keys.create, scope="admin", statuses=(201,),
            summary="Make an API key; its token is shown this once",
        ),
        endpoint(
            "DELETE", "/keys/{key_id}", keys.revoke, scope="admin", statuses=(204,),
            summary="Revoke an API key",
        ),
        endpoint(
            "GET", "/audit", audit.list_page, scope="admin",
            summary="List changes: who, when, before, after",
        ),
        *(
            endpoint(
                "GET", path, pages.show_metrics, scope="read", media_type="text/plain",
                summary="Metrics for Prometheus",
            )
            for path in ("/metrics", "/q/metrics")
        ),
        endpoint(
            "GET", "/openapi.json", pages.show_openapi, scope="read", summary="This API, described"
        ),
        endpoint(
            "GET", "/docs", pages.show_docs, scope="read", media_type="text/html",
            summary="This API, described for people",
        ),
        endpoint(
            "GET", "/", pages.go_to_docs, scope="read", statuses=(307,), media_type="text/html",
            summary="Go to the documentation",
        ),
    )  # fmt: skip
