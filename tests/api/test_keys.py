"""Who may do what: keys with scopes, shown once, refused from the moment they are revoked."""

import pytest
from httpx import AsyncClient

from tests.api.scene import Callers, all_endpoints, problem

TABLE = all_endpoints()
GUARDED = [each for each in TABLE if each.scope is not None]


def name_of(value: object) -> str:
    return f"{getattr(value, 'method', '')} {getattr(value, 'path', value)}"


def some_path(path: str) -> str:
    """Fill in the parameters of a path."""
    filled = path.replace("{name}", "work").replace("{key_id}", "nobody")
    filled = filled.replace("{eventId}", "event")
    return filled.replace("{item_id}", "17").replace("{replay_id}", "17")


def test_only_health_is_open_to_strangers() -> None:
    """The issue's rule, held against the table that makes the routes."""
    assert {each.path for each in TABLE if each.scope is None} == {
        "/health",
        "/health/live",
        "/health/ready",
        "/mails/unsubscribe/{token}",  # The token is signed, and mail programs have no key.
        "/outbox/results",  # Reports are signed with the secret of their rail.
    }


@pytest.mark.parametrize("each", GUARDED, ids=name_of)
async def test_without_a_key_nothing_is_done(shared_callers: Callers, each: object) -> None:
    method, path = str(getattr(each, "method", "")), some_path(str(getattr(each, "path", "")))

    response = await shared_callers.stranger.request(method, path, json={})

    problem(response, 401, "unauthenticated")
    assert response.headers["www-authenticate"] == 'Bearer realm="penstock"'


@pytest.mark.parametrize("each", GUARDED, ids=name_of)
async def test_the_error_for_a_key_names_the_scope_that_it_lacks(
    shared_callers: Callers, each: object
) -> None:
    method, path = str(getattr(each, "method", "")), some_path(str(getattr(each, "path", "")))
    scope = getattr(each, "scope", None)
    weaker = shared_callers.producer if scope == "read" else shared_callers.reader

    response = await weaker.request(method, path, json={})

    assert problem(response, 403, "forbidden")["scope"] == scope


async def test_a_key_is_made_shown_once_and_works(callers: Callers) -> None:
    body = {"name": "shop", "scopes": ["produce", "read"]}

    made = await callers.admin.post("/keys", json=body)
    token = made.json()["token"]
    used = await callers.stranger.get("/lanes", headers={"Authorization": f"bearer {token}"})
    listed = await callers.admin.get("/keys")

    assert made.status_code == 201
    assert made.headers["cache-control"] == "no-store"
    assert made.json()["key"]["scopes"] == ["produce", "read"]
    assert used.status_code == 200
    assert "shop" in {key["name"] for key in listed.json()["keys"]}
    assert token not in listed.text
    assert token.rsplit("_", 1)[-1] not in (await callers.admin.get("/audit")).text


async def test_a_key_that_is_made_over_rest_names_the_key_that_made_it(callers: Callers) -> None:
    """What a producer asks for must not be approved with a key that it has made."""
    body = {"name": "second", "scopes": ["approve"]}

    made = (await callers.admin.post("/keys", json=body)).json()["key"]

    listed = {key["key_id"]: key for key in (await callers.admin.get("/keys")).json()["keys"]}
    assert listed[made["created_by"]]["name"] == "admin"
    assert listed[made["created_by"]]["created_by"] is None


async def test_a_revoked_key_is_refused_at_once(callers: Callers) -> None:
    made = (await callers.admin.post("/keys", json={"name": "old", "scopes": ["read"]})).json()
    headers = {"Authorization": f"Bearer {made['token']}"}
    before = await callers.stranger.get("/lanes", headers=headers)

    revoked = await callers.admin.delete(f"/keys/{made['key']['key_id']}")
    after = await callers.stranger.get("/lanes", headers=headers)

    assert before.status_code == 200
    assert revoked.status_code == 204
    assert revoked.content == b""
    problem(after, 401, "unauthenticated")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"name": "", "scopes": ["read"]}, "name"),
        ({"name": "x" * 101, "scopes": ["read"]}, "name"),
        ({"name": "a\x00", "scopes": ["read"]}, "name"),
        ({"name": "a", "scopes": []}, "scopes"),
        ({"name": "a", "scopes": ["root"]}, "scopes[0]"),
        ({"name": "a", "scopes": ["read"], "token": "chosen by the caller"}, "token"),
    ],
)
async def test_a_wrong_key_is_not_made(
    shared_admin: AsyncClient, body: dict[str, object], field: str
) -> None:
    before = (await shared_admin.get("/keys")).json()

    response = await shared_admin.post("/keys", json=body)

    assert problem(response, 400, "invalid-input")["field"] == field
    assert (await shared_admin.get("/keys")).json() == before


async def test_revoking_an_unknown_key_is_not_found(admin: AsyncClient) -> None:
    response = await admin.delete("/keys/nobody")

    assert problem(response, 404, "unknown-key")["key_id"] == "nobody"
