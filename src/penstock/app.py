"""The application: handlers by lane, the domains of this process, and their life cycle."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Self, TypeVar, get_args, get_origin, get_type_hints

from penstock.base.aio import BlockingLoop, spawn, supervise
from penstock.base.errors import BadSetting, InvalidInput
from penstock.base.log import Logger, get_logger
from penstock.base.meter import Meter
from penstock.base.settings import Settings, settings
from penstock.compose.domains import (
    KERNEL,
    check_lane_names,
    chosen_domains,
    migration_packages,
    read_settings_of,
)
from penstock.compose.limit_keys import LimitKeyGate
from penstock.compose.redis import choose_gate
from penstock.contract import Domain, FixedField, Resources, Runtime, Service, check_domains
from penstock.contract.conflicts import check_runtimes
from penstock.contract.domain import FindKinds
from penstock.contract.http import Endpoint
from penstock.contract.resources import choose_vault
from penstock.kernel import enqueue as kernel_enqueue
from penstock.kernel.blocking import in_threads
from penstock.kernel.item import Accepted, Item, NewItem, Outcome, Retry
from penstock.kernel.kind import TIMEOUT, AnyKind, Kind, check_kind
from penstock.kernel.lane import (
    FIELDS,
    RESERVED_PREFIX,
    RESERVED_RULE,
    Lane,
    PolicyDifference,
    create_lane,
    differences,
    list_lanes,
    set_lane,
)
from penstock.kernel.payload import check_type
from penstock.kernel.sweep import sweep_forever
from penstock.kernel.worker import Worker
from penstock.postgres.clock import DatabaseClock
from penstock.postgres.embedded import Server, find_running, start, stop
from penstock.postgres.migrate import check, migrate
from penstock.postgres.pool import Connection, Pool, keep_trying, open_pool

T = TypeVar("T")
Handler = TypeVar("Handler", bound=Callable[..., Any])


@dataclass(slots=True)
class Penstock:
    """An application: handlers by lane, and a way to enqueue.

    Without a `dsn`, the database is that of PENSTOCK_DATABASE_URL, or else the embedded one in the
    data folder, which is started unless it is running. Use the app with `async with`;
    `enqueue_blocking` also works without it, on a running database.
    """

    dsn: str | None = None
    data_dir: Path | None = None  # Of an embedded database; None is PENSTOCK_DATA_DIR.
    domains: Sequence[Domain] | None = None  # None: those that PENSTOCK_DOMAINS names.
    migrates: bool = True  # False: the app only checks the schema when it opens.
    log: Logger = field(default_factory=get_logger)
    meter: Meter = field(default_factory=Meter)
    clock: DatabaseClock = field(default_factory=DatabaseClock)
    kinds: dict[str, AnyKind] = field(default_factory=dict)
    _policies: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    _owners: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    endpoints: tuple[Endpoint, ...] = ()
    services: tuple[Service, ...] = ()
    _added: list[Domain] = field(default_factory=list)
    _domain_lanes: list[str] = field(default_factory=list)
    _apis: list[object] = field(default_factory=list)
    _finds: list[FindKinds] = field(default_factory=list)
    _fixed: dict[str, Sequence[FixedField]] = field(default_factory=dict)
    _resources: Resources | None = None
    _closes: list[Callable[[], Awaitable[None]]] = field(default_factory=list)
    _server: Server | None = None
    _pool: Pool | None = None
    _blocking: BlockingLoop | None = None
    _blocking_pool: Pool | None = None

    # ------------------------------------------------------------------------------- handlers

    def handler(
        self,
        lane: str,
        *,
        timeout: timedelta = TIMEOUT,
        when_unknown: Callable[[str], Outcome] = Retry,
        **policy: Any,
    ) -> Callable[[Handler], Handler]:
        """Register a handler of a lane: `async def handle(item: Item[T]) -> Outcome | None`.

        A handler that takes `list[Item[T]]` gets whole batches and returns their outcomes. A plain
        `def` runs in a thread, and its attempt ends when the thread has ended. The annotation says
        what payloads are decoded to. `policy` is what the lane starts with; once the lane exists,
        only its row counts, and a difference is logged when the app opens.
        """
        if lane.startswith(RESERVED_PREFIX):
            raise InvalidInput("lane", RESERVED_RULE)

        def register(handle: Handler) -> Handler:
            payload_type, takes_batch = _signature(handle)
            kind = Kind(
                lane=lane,
                payload_type=payload_type,
                handle=None if takes_batch else handle,
                handle_many=handle if takes_batch else None,
                timeout=timeout,
                when_unknown=when_unknown,
            )
            self._add(kind, policy)
            return handle

        return register

    def add_domain(self, domain: Domain) -> None:
        """Add a domain to those that this process runs; it is built when the app opens."""
        self._added.append(domain)

    def all_domains(self) -> Sequence[Domain]:
        """Return the domains of this process; raises BadSetting for a name that nothing offers."""
        return (*(chosen_domains() if self.domains is None else self.domains), *self._added)

    def _add(self, kind: AnyKind, policy: Mapping[str, Any]) -> None:
        if kind.lane in self.kinds:
            raise InvalidInput("lane", f"{kind.lane!r} has a handler already")
        check_kind(kind)
        check_type(kind.payload_type)
        self.kinds[kind.lane] = in_threads(kind)
        self._policies[kind.lane] = policy

    # -------------------------------------------------------------------------------- enqueue

    async def enqueue(
        self,
        lane: str,
        payload: object,
        *,
        key: str | None = None,
        due_at: datetime | None = None,
        order_key: str | None = None,
        not_after: datetime | None = None,
        limit_keys: Mapping[str, str] | None = None,
        connection: object | None = None,
    ) -> Accepted:
        """Accept one item; with `connection`, in the caller's own transaction.

        The same `key` again returns the first item; with another payload it raises KeyConflict.
        """
        item = NewItem(
            payload=payload,
            key=key,
            due_at=due_at,
            order_key=order_key,
            not_after=not_after,
            limit_keys=limit_keys,
        )
        payload_type = self._payload_type(lane)
        if connection is not None:
            return await kernel_enqueue.enqueue(connection, lane, item, payload_type=payload_type)
        async with self.pool.acquire() as db:
            return await kernel_enqueue.enqueue(db, lane, item, payload_type=payload_type)

    async def enqueue_many(
        self, lane: str, items: Iterable[NewItem], *, connection: Any | None = None
    ) -> list[Accepted]:
        """Accept many items with COPY, all or none; `connection` must be one of asyncpg."""
        payload_type = self._payload_type(lane)
        if connection is not None:
            return await kernel_enqueue.enqueue_many(
                connection, lane, items, payload_type=payload_type
            )
        async with self.pool.acquire() as db:
            return await kernel_enqueue.enqueue_many(db, lane, items, payload_type=payload_type)

    def enqueue_blocking(
        self,
        lane: str,
        payload: object,
        *,
        key: str | None = None,
        due_at: datetime | None = None,
        order_key: str | None = None,
        not_after: datetime | None = None,
        limit_keys: Mapping[str, str] | None = None,
        connection: object | None = None,
    ) -> Accepted:
        """Do the same as `enqueue`, for synchronous code; safe to call from any thread."""
        item = NewItem(
            payload=payload,
            key=key,
            due_at=due_at,
            order_key=order_key,
            not_after=not_after,
            limit_keys=limit_keys,
        )
        payload_type = self._payload_type(lane)
        if connection is not None:
            return kernel_enqueue.enqueue_blocking(
                connection, lane, item, payload_type=payload_type
            )
        if self._blocking is None:
            self._blocking = BlockingLoop()
        return self._blocking.run(self._enqueue_on_blocking_loop(lane, item, payload_type))

    async def _enqueue_on_blocking_loop(
        self, lane: str, item: NewItem, payload_type: type[Any] | None
    ) -> Accepted:
        """Enqueue with the pool of the blocking loop: a pool belongs to one loop."""
        if self._blocking_pool is None:
            self._blocking_pool = await open_pool(self.address, min_size=0, max_size=4)
        async with self._blocking_pool.acquire() as db:
            return await kernel_enqueue.enqueue(db, lane, item, payload_type=payload_type)

    def _payload_type(self, lane: str) -> type[Any] | None:
        kind = self.kinds.get(lane)
        return None if kind is None else kind.payload_type

    # ------------------------------------------------------------------------------------ run

    @property
    def address(self) -> str:
        """The DSN in use; raises BadSetting when there is none."""
        if self.dsn is None:
            url = settings().database_url
            self.dsn = url.get_secret_value() if url else find_running(settings().data_dir)
        if self.dsn is None:
            reason = f"is not set, and no server runs in {settings().data_dir}"
            raise BadSetting("PENSTOCK_DATABASE_URL", reason)
        return self.dsn

    @property
    def pool(self) -> Pool:
        """The open pool; only inside `async with`."""
        if self._pool is None:
            raise RuntimeError("open the app first: async with app: …")
        return self._pool

    @property
    def resources(self) -> Resources:
        """What the app lends to its domains; only inside `async with`."""
        if self._resources is None:
            raise RuntimeError("open the app first: async with app: …")
        return self._resources

    def api(self, kind: type[T]) -> T:
        """Return what a domain offers to Python code, by its type; only inside `async with`."""
        found = next((each for each in self._apis if isinstance(each, kind)), None)
        if found is None:
            raise RuntimeError(f"no domain of this open app offers {kind.__qualname__}")
        return found

    async def open(self) -> None:
        """Wait for the database, migrate or check it, open the pool, create the lanes."""
        chosen = settings()
        domains = self.all_domains()
        check_domains((KERNEL, *domains))
        check_lane_names(domains)
        read_settings_of(domains)
        if not (self.dsn or chosen.database_url or find_running(chosen.data_dir)):
            self._server = start(chosen.data_dir, log=self.log)
            self.dsn = self._server.dsn
        self._pool = await self.keep_trying(
            lambda: open_pool(
                self.address, min_size=chosen.pool_size_min, max_size=chosen.pool_size_max
            )
        )
        gate, close_gate = choose_gate(self.log, self.meter)
        self._closes.append(close_gate)
        self._resources = Resources(
            pool=self._pool,
            settings=chosen,
            vault=choose_vault(self.address, self.data_dir),
            log=self.log,
            meter=self.meter,
            clock=self.clock,
            gate=gate,
        )
        built = [(domain, self._build(domain, self._resources)) for domain in domains]
        check_runtimes(built)
        for domain, runtime in built:
            self._add_runtime(domain, runtime)
        await self.keep_trying(lambda: self._prepare(migration_packages(domains)))

    def _build(self, domain: Domain, resources: Resources) -> Runtime:
        runtime = domain.build(resources)
        self._closes += runtime.close
        return runtime

    def _add_runtime(self, domain: Domain, runtime: Runtime) -> None:
        self.services += tuple(runtime.services)
        self._apis += runtime.apis
        if runtime.find_kinds is not None:
            self._finds.append(runtime.find_kinds)
        self._fixed |= runtime.fixed_fields
        self.endpoints += tuple(replace(each, tag=domain.name) for each in runtime.endpoints)
        owned = {lane.name: lane for lane in domain.lanes}
        for kind in runtime.kinds:
            lane = owned.get(kind.lane)
            self._add(kind, {} if lane is None else lane.policy)
            self._domain_lanes.append(kind.lane)
            if lane is not None:
                fixed = runtime.fixed_fields.get(lane.name, ())
                guards = lane.all_guards | {f"set:{each.field}": each.pointer for each in fixed}
                self._owners[lane.name] = {"owner": domain.name, "guards": guards}

    async def _prepare(self, packages: Sequence[str]) -> None:
        """Migrate or check the schema and create the lanes; safe to repeat."""
        async with self.pool.acquire() as db:
            if self.migrates:
                for name in await migrate(db, packages):
                    self.log.info("migration.applied", migration=name)
            else:
                await check(db, packages)
            for lane in self.kinds:
                owned, policy = self._owners.get(lane, {}), self._policies.get(lane, {})
                created = await self.create_lane(db, lane, who="app", **owned, **policy)
                await self._fix(db, created)
            for each in await self.lane_differences(db):
                if each.field == "on_lost":  # It decides whether lost work may be repeated.
                    self.log.warning("lane.differed", **asdict(each))
                else:
                    self.log.info("lane.differed", **asdict(each))

    async def missing_lanes(self, db: Connection) -> list[str]:
        """Return the lanes of handlers that do not exist yet; opening the app creates them."""
        return sorted(self.kinds.keys() - {lane.name for lane in await list_lanes(db)})

    async def _fix(self, db: Connection, lane: Lane) -> None:
        """Set what the environment fixes of a lane, if the lane has another value."""
        fixed = {each.field: each.value for each in self._fixed.get(lane.name, ())}
        if differences(lane, fixed):
            await set_lane(db, lane.name, who="app", owner=lane.owner, **fixed)

    async def lane_differences(self, db: Connection) -> list[PolicyDifference]:
        """Return where lanes differ from what their handlers declare: only the lane's row counts.

        Lanes that do not exist yet are left out; those of domains are known while the app is open.
        """
        return [
            each
            for lane in await list_lanes(db)
            for each in differences(lane, self._policies.get(lane.name, {}))
        ]

    def keep_trying(self, work: Callable[[], Awaitable[T]]) -> Coroutine[Any, Any, T]:
        """Await `work()` and repeat it while the database is unavailable; it must be repeatable."""
        return keep_trying(work, dsn=self.address, log=self.log)

    async def create_lane(self, db: Connection, lane: str, *, who: str, **policy: Any) -> Lane:
        """Return the lane; a new one gets the environment's policy, overridden by `policy`.

        `policy` may also have the `owner` and the `guards` of a lane of a domain.
        """
        return await create_lane(db, lane, who=who, **default_policy(settings()) | policy)

    async def close(self) -> None:
        """Close the pools, and stop the database if this app has started it."""
        # Domains are built with the app's resources; the next open builds them again.
        for lane in self._domain_lanes:
            del self.kinds[lane], self._policies[lane]
        self._domain_lanes.clear()
        self._owners.clear()
        self._apis.clear()
        self._finds.clear()
        self._fixed.clear()
        self.endpoints, self.services = (), ()
        self._resources = None
        while self._closes:
            await self._closes.pop()()
        if self._blocking is not None:
            blocking, self._blocking = self._blocking, None
            if self._blocking_pool is not None:
                blocking.run(self._blocking_pool.close())
                self._blocking_pool = None
            blocking.close()
        if self._pool is not None:
            pool, self._pool = self._pool, None
            await pool.close()
        if self._server is not None:
            stop(self._server)
            self._server = self.dsn = None

    async def __aenter__(self) -> Self:
        try:
            await self.open()
        except BaseException:
            # __aexit__ is not called then, and a server started here would keep running.
            await self.close()
            raise
        return self

    async def __aexit__(self, *failure: object) -> None:
        await self.close()

    async def run_worker(self, stop: asyncio.Event, *, lanes: Sequence[str] | None = None) -> None:
        """Run the handlers of all lanes, or of some, and the services, until `stop` is set.

        Services end first, so that items they have enqueued are still executed.
        """
        if lanes:
            await self.find_lanes(lanes)

        async def find_kinds() -> list[AnyKind]:
            found = await self._find_kinds()
            return [kind for kind in found if lanes is None or kind.lane in lanes]

        worker = Worker(
            dsn=self.address,
            pool=self.pool,
            kinds=[kind for kind in self.kinds.values() if lanes is None or kind.lane in lanes],
            gate=LimitKeyGate(self.resources.gate),
            log=self.log,
            meter=self.meter,
            clock=self.clock,
            poll_interval=settings().poll_interval,
            grace=settings().shutdown_grace,
            find_kinds=find_kinds if self._finds else None,
        )
        if not self.services:
            await worker.run(stop)
            return
        stop_worker = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            spawn(group, worker.run(stop_worker), name="worker")
            await self._run_services(stop)
            stop_worker.set()

    async def find_lanes(self, lanes: Sequence[str] | None = None) -> list[str]:
        """Return the lanes that a worker runs now: all that have a handler, or the given ones.

        Raises InvalidInput for a given one without a handler. A worker of all lanes also runs
        those that domains add to the database later.
        """
        known = self.kinds.keys() | {kind.lane for kind in await self._find_kinds()}
        unknown = sorted(set(lanes or ()) - known)
        if unknown:
            reason = f"no handler for {', '.join(unknown)}, only for {', '.join(sorted(known))}"
            raise InvalidInput("lane", reason)
        return sorted(known if lanes is None else set(lanes))

    async def _find_kinds(self) -> list[AnyKind]:
        """Return the kinds of lanes that domains find in the database; handlers of the app win."""
        found = [kind for find in self._finds for kind in await find()]
        return [kind for kind in found if kind.lane not in self.kinds]

    async def _run_services(self, stop: asyncio.Event) -> None:
        """Run the services until `stop` is set; cancel those that do not end within the grace."""
        grace = settings().shutdown_grace.total_seconds()
        try:
            async with asyncio.timeout(None) as limit, asyncio.TaskGroup() as group:
                for service in self.services:
                    spawn(group, self.run_service(service, stop), name=service.name)
                await stop.wait()
                limit.reschedule(asyncio.get_running_loop().time() + grace)
        except TimeoutError:
            self.log.warning("service.abandoned", grace_seconds=grace)

    async def run_service(self, service: Service, stop: asyncio.Event) -> None:
        """Run a service until `stop` is set; it is restarted when it fails."""

        async def run() -> None:
            # A service that cannot reach its server would fail again, and the process never end.
            if not stop.is_set():
                await service.run(stop)

        await supervise(run, name=service.name, log=self.log)

    async def run_sweeper(self) -> None:
        """Run the sweeper until cancelled; one per deployment is enough, more are harmless."""
        await supervise(
            lambda: sweep_forever(self.pool, meter=self.meter, log=self.log),
            name="sweeper",
            log=self.log,
        )


def default_policy(chosen: Settings) -> dict[str, Any]:
    """Return the policy that the environment sets for new lanes."""
    return {
        name: getattr(chosen, field.rule.setting)
        for name, field in FIELDS.items()
        if field.rule.setting is not None
    }


def _signature(handle: Callable[..., Any]) -> tuple[Any, bool]:
    """Return the payload's type and whether the handler takes batches, from its annotation."""
    parameters = list(inspect.signature(handle).parameters)
    if len(parameters) != 1:
        raise InvalidInput("handler", "must take exactly one parameter, the item")
    annotation = get_type_hints(handle).get(parameters[0], Any)
    takes_batch = get_origin(annotation) is list
    if takes_batch:
        (annotation,) = get_args(annotation)
    if get_origin(annotation) is Item:
        return get_args(annotation)[0], takes_batch
    if annotation in (Any, Item):
        return Any, takes_batch
    raise InvalidInput("handler", f"must take an Item or a list of them, not {annotation}")
