"""A Penstock without an address starts an embedded database."""

from collections.abc import Generator
from pathlib import Path

import pytest

from penstock import Item, Penstock
from penstock.base.settings import read_once
from penstock.contract import Domain, Resources, Runtime
from penstock.postgres.embedded import find_running


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """No address in the environment, and a data folder that belongs to the test."""
    monkeypatch.setenv("PENSTOCK_DATA_DIR", str(tmp_path))
    monkeypatch.delenv("PENSTOCK_DATABASE_URL", raising=False)
    read_once.cache_clear()
    yield
    read_once.cache_clear()


async def test_an_app_without_an_address_starts_a_server_and_stops_it(tmp_path: Path) -> None:
    """The first example of the README must run on a machine that has only Python."""
    app = Penstock()

    @app.handler("greetings")
    async def greet(_item: Item[str]) -> None: ...

    async with app:
        accepted = await app.enqueue("greetings", "hello")
        joined = Penstock()
        joined_address = joined.address

    assert accepted.is_new
    assert str(tmp_path) in joined_address
    assert find_running(tmp_path) is None


async def test_an_app_that_cannot_open_leaves_no_server_behind(tmp_path: Path) -> None:
    """`async with` does not close what has not opened; a leftover server would lock the folder."""
    app = Penstock()

    def build(_resources: Resources) -> Runtime:
        raise LookupError("no such thing")

    app.add_domain(Domain(name="broken", build=build))

    with pytest.raises(LookupError):
        await app.__aenter__()

    assert find_running(tmp_path) is None
