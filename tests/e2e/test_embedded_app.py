"""A Penstock without an address brings its own database."""

from pathlib import Path

import pytest

from penstock import Item, Penstock
from penstock.base.settings import settings
from penstock.postgres.embedded import find_running


async def test_an_app_without_an_address_starts_a_server_and_stops_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first example of the README must run on a machine that has only Python."""
    monkeypatch.setenv("PENSTOCK_DATA_DIR", str(tmp_path))
    monkeypatch.delenv("PENSTOCK_DATABASE_URL", raising=False)
    settings.cache_clear()
    app = Penstock()

    @app.handler("greetings")
    async def greet(_item: Item[str]) -> None: ...

    async with app:
        accepted = await app.enqueue("greetings", "hello")
        joined = Penstock()
        joined_address = joined.address
    settings.cache_clear()

    assert accepted.is_new
    assert str(tmp_path) in joined_address
    assert find_running(tmp_path) is None
