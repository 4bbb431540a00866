"""The simulator inside `penstock up`: where it is allowed, and the rail that leads to it.

One process serves it, the one that has locked the ledger; others find its address in the rail.
"""

import asyncio
import fcntl
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.contract import Resources
from penstock.domains.outbox.errors import NoSimulator
from penstock.domains.outbox.rails.registry import SIMULATOR, RailRow, list_rails, put_rail
from penstock.domains.outbox.rails.simulator.entry import Entry, Totals
from penstock.domains.outbox.rails.simulator.server import Simulator, open_simulator, serving
from penstock.domains.outbox.rails.simulator.settings import SimulatorSettings
from penstock.postgres.pool import Queries
from penstock.postgres.statement import statement

READ_DATA_DIRECTORY = statement(__package__, "read_data_directory.sql")

LEDGER = "outbox-simulator.sqlite3"
LOCK_FILE = "penstock.lock"  # What an embedded server has beside its folder.
LOOK_AGAIN_SECONDS = 5  # Another process may end and leave the ledger.


@dataclass(slots=True, kw_only=True)
class SimulatorService:
    """Serves the simulator while the app runs, if this process may and no other one does."""

    resources: Resources
    chosen: SimulatorSettings
    _running: Simulator | None = None

    async def may_simulate(self, db: Queries) -> bool:
        """Return whether the rail `simulator` may be used on this database."""
        if self.chosen.outbox_simulator is not None:
            return self.chosen.outbox_simulator
        return await _embedded_folder(db) is not None

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop`; returns at once where the simulator is not allowed."""
        folder = await self._choose_folder()
        if folder is None:
            return
        folder.mkdir(parents=True, exist_ok=True)
        while not stop.is_set():
            with _locked(folder / f"{LEDGER}.lock") as is_owner:
                if is_owner:
                    await self._serve(folder / LEDGER, stop)
                    return
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), timeout=LOOK_AGAIN_SECONDS)

    async def list(self, *, after: int, limit: int) -> tuple[list[Entry], Totals]:
        """Return a page of the ledger and its totals; raises NoSimulator."""
        if self._running is None:
            raise NoSimulator
        return await self._running.read(after=after, limit=limit)

    async def _choose_folder(self) -> Path | None:
        async with self.resources.pool.acquire() as db:
            embedded = await _embedded_folder(db)
        if self.chosen.outbox_simulator is False:
            return None
        if embedded is None and self.chosen.outbox_simulator:
            self.resources.log.warning("simulator.allowed", reason="PENSTOCK_OUTBOX_SIMULATOR")
            return self.resources.settings.data_dir
        return embedded

    async def _serve(self, path: Path, stop: asyncio.Event) -> None:
        simulator = await open_simulator(path)
        with closing(simulator.ledger):
            async with serving(simulator) as url:
                await self._put_rail(url)
                self.resources.log.info("simulator.started", url=url)
                self._running = simulator
                try:
                    await stop.wait()
                finally:
                    self._running = None

    async def _put_rail(self, url: str) -> None:
        """Let the rail lead here, unless an operator has set it up otherwise."""
        async with self.resources.pool.acquire() as db:
            rails = {each.rail_type: each for each in await list_rails(db)}
            rail = rails.get(SIMULATOR) or RailRow(
                rail_type=SIMULATOR, adapter=SIMULATOR, code_set=SIMULATOR
            )
            if rail.adapter != SIMULATOR:
                self.resources.log.warning("simulator.shadowed", adapter=rail.adapter)
                return
            rail = replace(rail, config={**rail.config, "url": url})
            await put_rail(db, rail, vault=self.resources.vault, who=SIMULATOR)


async def _embedded_folder(db: Queries) -> Path | None:
    """Return the data folder if this database runs in one on this machine."""
    text = await db.fetchval(READ_DATA_DIRECTORY)
    if text is None:
        return None
    folder = Path(text).parent
    return folder if (folder / LOCK_FILE).exists() else None


@contextmanager
def _locked(path: Path) -> Generator[bool]:
    """Lock a file for this process; yield whether it could."""
    with path.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
