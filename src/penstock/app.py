"""The composition root: a Penstock has a database, handlers, and what they need to run."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar, get_args, get_origin, get_type_hints

from penstock.base.aio import BlockingLoop, supervise
from penstock.base.errors import BadSetting, InvalidInput, MissingExtra
from penstock.base.log import Logger, get_logger
from penstock.base.meter import Meter
from penstock.base.settings import Settings, settings
from penstock.base.vault import Vault, load_or_make_key, parse_keys
from penstock.contract import Build, Domain, Resources
from penstock.contract.http import Endpoint
from penstock.domains import slots, webhooks
from penstock.domains.webhooks.accept import Publish, accept_messages
from penstock.integrations.http_client.egress import Egress
from penstock.integrations.http_client.poster import Poster
from penstock.integrations.kafka.options import Options, security_options
from penstock.kernel import enqueue as kernel_enqueue
from penstock.kernel.item import Accepted, Item, NewItem, Outcome, Retry
from penstock.kernel.kind import TIMEOUT, AnyKind, Kind
from penstock.kernel.lane import Lane, create_lane
from penstock.kernel.sweep import sweep_forever
from penstock.kernel.worker import Worker
from penstock.limits.gate import Gate
from penstock.limits.local import LocalGate
from penstock.postgres.embedded import Server, find_running, start, stop
from penstock.postgres.migrate import migrate
from penstock.postgres.pool import Connection, Pool, keep_trying, open_pool

# Packages with migrations, in the order they build on each other.
OWNERS = ("penstock.kernel", "penstock.domains.slots", "penstock.domains.webhooks")

T = TypeVar("T")
Handler = TypeVar("Handler", bound=Callable[..., Awaitable[Any]])


@dataclass(slots=True)
class Penstock:
    """An application: handlers by lane, and a way to enqueue.

    Without a `dsn`, PENSTOCK_DATABASE_URL says where the database is; without that, it is the one
    in the data folder, started if nobody runs it. Use the app with `async with`;
    `enqueue_blocking` works without, on a database that is there.
    """

    dsn: str | None = None
    data_dir: Path | None = None  # Of an embedded database; None is PENSTOCK_DATA_DIR.
    log: Logger = field(default_factory=get_logger)
    meter: Meter = field(default_factory=Meter)
    kinds: dict[str, AnyKind] = field(default_factory=dict)
    _policies: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    endpoints: tuple[Endpoint, ...] = ()
    _builds: list[Build] = field(default_factory=lambda: list(DOMAINS))
    _plugged: list[str] = field(default_factory=list)
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

        A handler that takes `list[Item[T]]` gets whole batches and returns their outcomes. The
        annotation says what payloads are decoded to. `policy` is what the lane starts with; once
        the lane exists, only its row counts.
        """

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

    def plug(self, build: Build) -> None:
        """Add a domain; it is built when the app opens, with what the app lends it."""
        self._builds.append(build)

    def _add(self, kind: AnyKind, policy: Mapping[str, Any]) -> None:
        if kind.lane in self.kinds:
            raise InvalidInput("lane", f"{kind.lane!r} has a handler already")
        self.kinds[kind.lane] = kind
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
        connection: object | None = None,
    ) -> Accepted:
        """Accept one item; with `connection`, in the caller's own transaction.

        The same `key` again returns the first item; with another payload it raises KeyConflict.
        """
        item = NewItem(
            payload=payload, key=key, due_at=due_at, order_key=order_key, not_after=not_after
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
        connection: object | None = None,
    ) -> Accepted:
        """Do as `enqueue`, for code that does not await; safe to call from any thread."""
        item = NewItem(
            payload=payload, key=key, due_at=due_at, order_key=order_key, not_after=not_after
        )
        payload_type = self._payload_type(lane)
        if connection is not None:
            return kernel_enqueue.enqueue_blocking(
                connection, lane, item, payload_type=payload_type
            )
        if self._blocking is None:
            self._blocking = BlockingLoop()
        return self._blocking.run(self._enqueue_apart(lane, item, payload_type))

    async def _enqueue_apart(
        self, lane: str, item: NewItem, payload_type: type[Any] | None
    ) -> Accepted:
        """Enqueue on the blocking loop, with a pool of its own: pools belong to one loop."""
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

    async def open(self) -> None:
        """Wait for the database, migrate it, open the pool and make the handlers' lanes."""
        chosen = settings()
        if not (self.dsn or chosen.database_url or find_running(chosen.data_dir)):
            self._server = start(chosen.data_dir, log=self.log)
            self.dsn = self._server.dsn
        self._pool = await self.keep_trying(
            lambda: open_pool(
                self.address, min_size=chosen.pool_size_min, max_size=chosen.pool_size_max
            )
        )
        resources = Resources(
            pool=self._pool,
            settings=chosen,
            vault=choose_vault(self.address, self.data_dir),
            log=self.log,
            meter=self.meter,
        )
        domains: list[Domain] = []
        for build in self._builds:
            domains.append(build(resources))
            self._closes += domains[-1].close
        self.endpoints = tuple(
            replace(each, tag=domain.name) for domain in domains for each in domain.endpoints
        )
        for domain in domains:
            for kind in domain.kinds:
                self._add(kind, domain.policies.get(kind.lane, {}))
                self._plugged.append(kind.lane)
        owners = dict.fromkeys([*OWNERS, *(own for domain in domains for own in domain.owners)])
        await self.keep_trying(lambda: self._prepare(list(owners)))

    async def _prepare(self, owners: list[str]) -> None:
        """Bring the database up to date; a repeat finds what is there already."""
        async with self.pool.acquire() as db:
            for name in await migrate(db, owners):
                self.log.info("migration.applied", migration=name)
            for lane in self.kinds:
                await self.create_lane(db, lane, who="app", **self._policies.get(lane, {}))

    def keep_trying(self, work: Callable[[], Awaitable[T]]) -> Coroutine[Any, Any, T]:
        """Await `work()`, which may be repeated, again and again while the database is away."""
        return keep_trying(work, dsn=self.address, log=self.log)

    async def create_lane(self, db: Connection, lane: str, *, who: str, **policy: Any) -> Lane:
        """Return the lane, made if it was not there: from the environment's policy and `policy`."""
        return await create_lane(db, lane, who=who, **default_policy(settings()) | policy)

    async def close(self) -> None:
        """Close the pools, and stop the database if this app has started it."""
        # They stand on what the app has lent them; when it opens again, they are built anew.
        for lane in self._plugged:
            del self.kinds[lane], self._policies[lane]
        self._plugged.clear()
        self.endpoints = ()
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
            # Nobody calls __aexit__ then, and a server that we started would be left running.
            await self.close()
            raise
        return self

    async def __aexit__(self, *failure: object) -> None:
        await self.close()

    async def run_worker(self, stop: asyncio.Event, *, lanes: Sequence[str] | None = None) -> None:
        """Run the handlers of all lanes, or of some, until `stop` is set."""
        unknown = set(lanes or ()) - self.kinds.keys()
        if unknown:
            raise InvalidInput("lane", f"no handler for {', '.join(sorted(unknown))}")
        worker = Worker(
            dsn=self.address,
            pool=self.pool,
            kinds=[kind for kind in self.kinds.values() if lanes is None or kind.lane in lanes],
            log=self.log,
            meter=self.meter,
            poll_interval=settings().poll_interval,
            grace=settings().shutdown_grace,
        )
        await worker.run(stop)

    def run_consumer(self, stop: asyncio.Event) -> Coroutine[Any, Any, None]:
        """Accept events from Kafka until `stop` is set; BadSetting or MissingExtra come at once."""
        chosen = settings()
        if chosen.kafka_bootstrap is None:
            raise BadSetting("PENSTOCK_KAFKA_BOOTSTRAP", "is not set")
        try:
            from penstock.integrations.kafka.consumer import Consumer, Source  # noqa: PLC0415
        except ModuleNotFoundError as absent:
            raise MissingExtra("kafka", "PENSTOCK_KAFKA_BOOTSTRAP") from absent
        source = Source(
            bootstrap=chosen.kafka_bootstrap,
            topic=chosen.kafka_topic,
            group=chosen.kafka_group,
            dead_topic=chosen.kafka_dead_topic,
            options=_kafka_options(chosen),
        )
        accept = partial(accept_messages, self.pool, data_bytes_max=chosen.payload_bytes_max)
        consumer = Consumer(source, accept, log=self.log, meter=self.meter)
        return supervise(lambda: consumer.run(stop), name="consumer", log=self.log)

    async def run_sweeper(self) -> None:
        """Repair and clean until cancelled; one per deployment is enough, more do no harm."""
        await supervise(
            lambda: sweep_forever(self.pool, meter=self.meter, log=self.log),
            name="sweeper",
            log=self.log,
        )


def choose_vault(address: str, data_dir: Path | None = None) -> Vault:
    """Return what seals secrets: with the key that is set, or that of the database's own folder."""
    chosen = settings()
    if chosen.secret_key is not None:
        return Vault(*parse_keys(chosen.secret_key.get_secret_value()))
    folder = data_dir or chosen.data_dir
    if address == find_running(folder):
        return Vault(*parse_keys(load_or_make_key(folder)))
    return Vault()


def build_webhooks(resources: Resources) -> Domain:
    """Bring webhooks together with what carries them: an HTTP client, Redis, Kafka."""
    chosen = resources.settings
    egress = Egress(chosen.egress_allow, ports=frozenset(chosen.egress_ports) or None)
    poster = Poster(egress)
    gate: Gate = LocalGate()
    closes: list[Callable[[], Awaitable[None]]] = [poster.close]
    if chosen.redis_url is not None:
        gate, close = _share_gate(chosen.redis_url.get_secret_value(), gate, resources)
        closes.append(close)
    publish: Publish | None = None
    if chosen.events_to == "kafka":
        publish, close = _publish_to_kafka(resources)
        closes.append(close)
    domain = webhooks.build(resources, poster=poster, gate=gate, publish=publish)
    return replace(domain, close=closes)


def _share_gate(
    url: str, local: Gate, resources: Resources
) -> tuple[Gate, Callable[[], Awaitable[None]]]:
    """Return the gate of all workers on one Redis, and what closes it."""
    try:
        from penstock.integrations.redis.client import connect  # noqa: PLC0415  An extra.
        from penstock.integrations.redis.fallback import FallbackGate  # noqa: PLC0415
        from penstock.integrations.redis.gate import RedisGate  # noqa: PLC0415
    except ModuleNotFoundError as absent:
        raise MissingExtra("redis", "PENSTOCK_REDIS_URL") from absent
    client = connect(url)
    shared = RedisGate(client)
    gate = FallbackGate(shared, local, log=resources.log, meter=resources.meter)

    async def close() -> None:
        await shared.released()
        await client.aclose()

    return gate, close


def _publish_to_kafka(resources: Resources) -> tuple[Publish, Callable[[], Awaitable[None]]]:
    """Return what publishes events, and what closes it."""
    try:
        from penstock.integrations.kafka.publisher import Publisher  # noqa: PLC0415  An extra.
    except ModuleNotFoundError as absent:
        raise MissingExtra("kafka", "PENSTOCK_EVENTS_TO") from absent
    chosen = resources.settings
    assert chosen.kafka_bootstrap is not None, "settings without it are refused"
    publisher = Publisher(
        chosen.kafka_bootstrap,
        chosen.kafka_topic,
        log=resources.log,
        options=_kafka_options(chosen),
    )
    return publisher.publish, publisher.close


def _kafka_options(chosen: Settings) -> Options:
    password = chosen.kafka_password
    return security_options(
        tls=chosen.kafka_tls,
        ca=chosen.kafka_ca,
        mechanism=chosen.kafka_mechanism,
        username=chosen.kafka_username,
        password=None if password is None else password.get_secret_value(),
    )


DOMAINS: tuple[Build, ...] = (slots.build, build_webhooks)


def default_policy(chosen: Settings) -> dict[str, Any]:
    """Return what the environment says of new lanes."""
    return {
        "max_attempts": chosen.max_attempts,
        "backoff_base": chosen.backoff_base,
        "backoff_cap": chosen.backoff_max,
        "backoff_jitter": chosen.backoff_jitter,
        "payload_bytes_max": chosen.payload_bytes_max,
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
