"""A process that loses its database during the start waits for it."""

import pytest
from structlog.testing import capture_logs

from penstock import Item, Penstock
from penstock.cli.first_key import ensure_admin_key
from penstock.kernel.api_keys import authenticate, list_keys
from penstock.postgres.pool import Pool

# A sequence is not rolled back, so only the first connection is terminated.
CUT_ONCE = """
CREATE SEQUENCE cuts;
CREATE FUNCTION cut_once() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF nextval('cuts') = 1 THEN
        PERFORM pg_terminate_backend(pg_backend_pid());
    END IF;
    RETURN NEW;
END
$$;
"""
AT_A_NEW_LANE = (
    "CREATE TRIGGER cut BEFORE INSERT ON penstock.lane FOR EACH ROW EXECUTE FUNCTION cut_once()"
)
AT_A_NEW_KEY = (
    "CREATE TRIGGER cut BEFORE INSERT ON penstock.api_key FOR EACH ROW EXECUTE FUNCTION cut_once()"
)


async def test_an_app_opens_although_its_connection_is_lost(dsn: str, db: Pool) -> None:
    app = Penstock(dsn)

    @app.handler("greetings")
    async def greet(_item: Item[str]) -> None: ...

    await db.execute(CUT_ONCE)
    await db.execute(AT_A_NEW_LANE)

    with capture_logs() as lines:
        async with app:
            accepted = await app.enqueue("greetings", "hello")

    assert accepted.is_new
    assert [line["event"] for line in lines if line["log_level"] == "warning"] == [
        "database.awaited"
    ]


async def test_the_first_key_is_created_and_shown_although_a_connection_is_lost(
    dsn: str, db: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key that is created and not shown would lock out all users."""
    monkeypatch.delenv("PENSTOCK_ADMIN_KEY", raising=False)
    async with Penstock(dsn) as app:
        await db.execute(CUT_ONCE)
        await db.execute(AT_A_NEW_KEY)

        token = await ensure_admin_key(app)

        assert token is not None
        assert (await authenticate(db, token)).scopes
        assert len(await list_keys(db)) == 1
        assert await ensure_admin_key(app) is None, "it is shown once"
