"""Start and stop of a process with an app: its database, its API, its worker.

What can fail at start (folder, database, port) comes first, then the line on standard output, then
the work.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from penstock.app import Penstock
from penstock.base.aio import spawn, supervise
from penstock.base.errors import MissingExtra
from penstock.base.settings import settings
from penstock.console.process import StopSignal
from penstock.postgres.embedded import embedded_server


@asynccontextmanager
async def opened(app: Penstock, data_dir: Path | None) -> AsyncGenerator[Penstock]:
    """Open the app on its own database, the one in the environment, or an embedded one."""
    chosen = settings()
    if app.dsn is None and chosen.database_url is None:
        folder = data_dir or chosen.data_dir
        async with embedded_server(folder, log=app.log) as server:
            app.dsn, app.data_dir = server.dsn, folder
            async with app:
                yield app
    else:
        async with app:
            yield app


@asynccontextmanager
async def listening(
    app: Penstock,
    *,
    host: str,
    port: int,
    is_health_only: bool = False,
    prepare: Callable[[], Awaitable[object]] | None = None,
) -> AsyncGenerator[str]:
    """Serve the API while the body runs and yield its URL; requests in progress are completed.

    With `is_health_only`, it has health and metrics alone. `prepare` is awaited before any request
    is answered, once the port is known to be free.
    """
    try:
        from penstock import api, web  # noqa: PLC0415  The extra may not be installed.
    except ModuleNotFoundError as missing:
        raise MissingExtra("api", "the REST API") from missing
    stop = asyncio.Event()
    url: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    async with asyncio.TaskGroup() as group:
        spawn(
            group,
            web.serve(
                api.create_app(app, is_health_only=is_health_only),
                host=host,
                port=port,
                stop=stop,
                on_listening=url.set_result,
                prepare=prepare,
            ),
            name="api",
        )
        try:
            yield await url
        finally:
            stop.set()


async def work_until_asked(app: Penstock, stop: StopSignal, lanes: list[str] | None = None) -> None:
    """Run the handlers until a stop is requested; restart them if they fail."""

    async def work() -> None:
        if (app.kinds or app.services) and not stop.asked.is_set():
            await app.run_worker(stop.asked, lanes=lanes)

    await supervise(work, name="worker", log=app.log)
    await stop.asked.wait()
