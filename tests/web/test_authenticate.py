"""Callers are authenticated by keys, which are cached for a moment and refused once revoked."""

import asyncio
import base64
from collections.abc import AsyncGenerator

import pytest
from httpx import AsyncClient

from penstock import Penstock
from penstock.base.aio import spawn
from penstock.kernel.api_keys import revoke_key
from penstock.postgres.pool import Pool
from tests.api.scene import Callers, count_items, problem


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
async def test_an_invalid_key_is_refused_without_a_reason(
    shared_callers: Callers, header: str
) -> None:
    response = await shared_callers.stranger.get("/lanes", headers={"Authorization": header})

    assert problem(response, 401, "unauthenticated")["detail"] == "a valid API key is required"


async def test_a_key_that_was_revoked_on_another_node_is_soon_refused(
    callers: Callers, db: Pool
) -> None:
    """A node caches a key for a moment, and no longer because the key is in constant use."""
    made = (await callers.admin.post("/keys", json={"name": "old", "scopes": ["read"]})).json()
    headers = {"Authorization": f"Bearer {made['token']}"}
    before = await callers.stranger.get("/lanes", headers=headers)

    async with db.acquire() as connection:
        await revoke_key(connection, made["key"]["key_id"], who="another node")
    async with asyncio.timeout(10):
        while (await callers.stranger.get("/lanes", headers=headers)).status_code == 200:
            pass

    assert before.status_code == 200


async def test_a_revoked_key_is_refused_at_once_also_among_many_concurrent_requests(
    callers: Callers,
) -> None:
    """Concurrent requests share one read of their keys, which must not be older than they are."""
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


async def test_a_browser_may_read_with_the_key_as_password_but_not_write(
    callers: Callers, penstock: Penstock
) -> None:
    """A browser repeats a password by itself, also in requests that another site causes."""
    token = callers.admin.headers["authorization"].removeprefix("Bearer ")
    auth = ("me", token)

    asked = await callers.stranger.get("/docs", headers={"Accept": "text/html"})
    read = await callers.stranger.get("/docs", auth=auth)
    written = await callers.stranger.post("/items", json={"lane": "work", "payload": 1}, auth=auth)

    assert "Basic" in asked.headers["www-authenticate"]
    assert read.status_code == 200
    problem(written, 401, "unauthenticated")
    assert (await count_items(penstock)).accepted == 0


async def test_a_request_without_a_key_is_refused_before_its_body_is_read(
    shared_callers: Callers,
) -> None:
    """Else anybody could keep the server busy with megabytes."""
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
