"""Who may do what: keys with scopes, shown once, refused from the moment they are revoked."""

import asyncio
import base64
from collections.abc import AsyncGenerator

import pytest
from httpx import AsyncClient

from penstock import Penstock
from penstock.base.aio import spawn
from penstock.kernel.keys import revoke_key
from penstock.postgres.pool import Pool
from tests.api.scene import Callers, all_endpoints, count_items, problem

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
    }


@pytest.mark.parametrize("each", GUARDED, ids=name_of)
async def test_without_a_key_nothing_is_done(shared_callers: Callers, each: object) -> None:
    method, path = str(getattr(each, "method", "")), some_path(str(getattr(each, "path", "")))

    response = await shared_callers.stranger.request(method, path, json={})

    problem(response, 401, "unauthenticated")
    assert response.headers["www-authenticate"] == 'Bearer realm="penstock"'


@pytest.mark.parametrize("each", GUARDED, ids=name_of)
async def test_a_key_without_the_scope_is_told_which_it_lacks(
    shared_callers: Callers, each: object
) -> None:
    method, path = str(getattr(each, "method", "")), some_path(str(getattr(each, "path", "")))
    scope = getattr(each, "scope", None)
    weaker = shared_callers.producer if scope == "read" else shared_callers.reader

    response = await weaker.request(method, path, json={})

    assert problem(response, 403, "forbidden")["scope"] == scope


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Bearer ",
        "Bearer wrong",
        "Bearer psk_00000000_wrong",
        "Bearer psk__",
        f"Bearer {'x' * 100_000}",
        "Basic nonsense",
        "Basic " + base64.b64encode(b"me:psk_\x00_secret").decode(),
        "Digest username=me",
    ],
    ids=lambda header: header[:20],
)
async def test_what_is_no_key_of_ours_is_refused_without_saying_why(
    shared_callers: Callers, header: str
) -> None:
    response = await shared_callers.stranger.get("/lanes", headers={"Authorization": header})

    assert problem(response, 401, "unauthenticated")["detail"] == "a valid API key is required"


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


async def test_a_key_that_was_revoked_on_another_node_is_soon_refused(
    callers: Callers, db: Pool
) -> None:
    """A node believes a key for a moment, and no longer because it is used all the time."""
    made = (await callers.admin.post("/keys", json={"name": "old", "scopes": ["read"]})).json()
    headers = {"Authorization": f"Bearer {made['token']}"}
    before = await callers.stranger.get("/lanes", headers=headers)

    async with db.acquire() as connection:
        await revoke_key(connection, made["key"]["key_id"], who="another node")
    async with asyncio.timeout(10):
        while (await callers.stranger.get("/lanes", headers=headers)).status_code == 200:
            pass

    assert before.status_code == 200


async def test_a_revoked_key_is_refused_at_once_also_among_many_who_call_together(
    callers: Callers,
) -> None:
    """Those who come together are looked up together; none may be answered from before."""
    made = (await callers.admin.post("/keys", json={"name": "old", "scopes": ["read"]})).json()
    headers = {"Authorization": f"Bearer {made['token']}"}

    async def call(client: AsyncClient, headers: dict[str, str] | None = None) -> int:
        return (await client.get("/lanes", headers=headers)).status_code

    async def revoke_and_call() -> list[int]:
        await callers.admin.delete(f"/keys/{made['key']['key_id']}")
        return await asyncio.gather(
            *(call(callers.stranger, headers) for _ in range(20)),
            *(call(callers.reader) for _ in range(20)),
        )

    before = await call(callers.stranger, headers)
    async with asyncio.TaskGroup() as group:
        busy = [spawn(group, call(callers.reader)) for _ in range(50)]
        mixed = [spawn(group, call(callers.stranger, headers)) for _ in range(50)]
        after = spawn(group, revoke_and_call())

    assert before == 200
    assert {task.result() for task in busy} == {200}
    assert {task.result() for task in mixed} <= {200, 401}
    assert after.result() == [401] * 20 + [200] * 20


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


async def test_a_browser_may_read_with_the_key_as_password_but_not_write(
    callers: Callers, penstock: Penstock
) -> None:
    """A browser repeats a password by itself, also for a page of somebody else's."""
    token = callers.admin.headers["authorization"].removeprefix("Bearer ")
    auth = ("me", token)

    asked = await callers.stranger.get("/docs", headers={"Accept": "text/html"})
    read = await callers.stranger.get("/docs", auth=auth)
    written = await callers.stranger.post("/items", json={"lane": "work", "payload": 1}, auth=auth)

    assert "Basic" in asked.headers["www-authenticate"]
    assert read.status_code == 200
    problem(written, 401, "unauthenticated")
    assert (await count_items(penstock)).accepted == 0


async def test_who_may_not_ask_is_told_before_the_body_is_read(
    shared_callers: Callers,
) -> None:
    """Else anybody could keep us busy with megabytes."""
    read = False

    async def body() -> AsyncGenerator[bytes]:
        nonlocal read
        read = True
        yield b"{}"

    response = await shared_callers.stranger.post(
        "/items", content=body(), headers={"Content-Type": "application/json"}
    )

    problem(response, 401, "unauthenticated")
    assert not read
