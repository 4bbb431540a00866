"""Resolve a target into checked addresses; the connection goes to one of these."""

import asyncio
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta

from penstock.integrations.http_client.egress import Egress, EgressRefused
from penstock.integrations.http_client.errors import failure, within
from penstock.integrations.http_client.request import Target

# Blocks; raises OSError if the name cannot be resolved.
Lookup = Callable[[str], Sequence[str]]

# A name server that does not answer blocks a thread for 5 to 30 s. The event loop's own executor
# has few threads, shared by everything; lookups of users' names get their own.
THREADS_MAX = 16
PENDING_MAX = 1_000  # A lookup behind a longer queue would time out anyway.
CACHED_MAX = 10_000  # A few megabytes; users choose how many names there are.
# A burst to a name without an address asks once, and a new DNS entry is soon seen.
FAILURE_TTL = timedelta(seconds=1)


def look_up(host: str) -> Sequence[str]:
    """Return all addresses of a name from the system's resolver, in the order to try them."""
    # As bytes, because a str passes through Python's IDNA codec, which changes names.
    found = socket.getaddrinfo(host.encode("ascii"), None, type=socket.SOCK_STREAM)
    return [str(place[0]) for *_, place in found]


@dataclass(frozen=True, slots=True)
class _Cached:
    """The addresses of a name, or why there are none; valid until this time of the loop."""

    addresses: Sequence[str]
    flaw: str
    until: float


class HostResolver:
    """Runs one lookup per name at a time and caches its result for `ttl`."""

    def __init__(
        self,
        egress: Egress,
        *,
        ttl: timedelta,
        lookup: Lookup = look_up,
        cached_max: int = CACHED_MAX,
    ) -> None:
        self._egress = egress
        self._cached_max = cached_max
        self._ttl = ttl.total_seconds()
        self._lookup = lookup
        self._threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="penstock-lookup")
        self._pending: dict[str, asyncio.Future[Sequence[str]]] = {}
        self._cache: dict[str, _Cached] = {}

    async def resolve(self, target: Target, *, until: float) -> Sequence[str]:
        """Return the addresses of a target, all of them checked; raises CallFailed.

        One refused address is enough to refuse a name: a name with public and internal addresses
        is a sign of DNS rebinding. An operator who means it can allow the internal network.
        """
        try:
            self._egress.check_port(target.port)
            if target.address is not None:
                addresses: Sequence[str] = [target.address]
            else:
                addresses = await self._addresses_of(target.host, until)
            for address in addresses:
                self._egress.check(address)
        except EgressRefused as refused:
            raise failure("refused_address", f"the host {refused}") from refused
        except OSError as unknown:
            reason = f"the host name could not be resolved: {unknown.strerror}"
            raise failure("bad_name", reason) from unknown
        return addresses

    def close(self) -> None:
        """Fail all pending lookups. A thread that waits for a name server ends at its timeout."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for pending in self._pending.values():
            pending.set_exception(failure("closed", "the client is closed"))
            pending.exception()  # Marks it as retrieved: all callers may have timed out.
        self._pending.clear()

    async def _addresses_of(self, host: str, until: float) -> Sequence[str]:
        cached = self._cache.get(host)
        if cached is None or asyncio.get_running_loop().time() >= cached.until:
            # A caller that times out leaves the lookup running for the others and later callers.
            async with within(until, "looking up the name"):
                return await asyncio.shield(self._pending.get(host) or self._start(host))
        if not cached.addresses:
            raise OSError(None, cached.flaw)
        return cached.addresses

    def _start(self, host: str) -> "asyncio.Future[Sequence[str]]":
        if len(self._pending) >= PENDING_MAX:
            raise OSError(None, "too many lookups are pending")
        loop = asyncio.get_running_loop()
        running = loop.run_in_executor(self._threads, self._look_up, host)
        running.add_done_callback(lambda done: self._finish(host, done))
        pending = self._pending[host] = loop.create_future()
        return pending

    def _look_up(self, host: str) -> Sequence[str]:
        addresses = self._lookup(host)
        if not addresses:
            raise OSError(None, "it has no address")
        return addresses

    def _finish(self, host: str, done: "asyncio.Future[Sequence[str]]") -> None:
        flaw = None if done.cancelled() else done.exception()
        pending = self._pending.pop(host, None)
        if pending is None:  # The resolver was closed, which has failed it.
            return
        if flaw is None:
            addresses = done.result()
            pending.set_result(addresses)
            self._store(host, addresses, seconds=self._ttl)
        else:
            pending.set_exception(flaw)
            pending.exception()  # Marks it as retrieved: all callers may have timed out.
            if isinstance(flaw, OSError):
                seconds = FAILURE_TTL.total_seconds()
                self._store(host, (), seconds=seconds, flaw=str(flaw.strerror))

    def _store(
        self, host: str, addresses: Sequence[str], *, seconds: float, flaw: str = ""
    ) -> None:
        self._cache.pop(host, None)  # Keeps the dictionary in order of age.
        until = asyncio.get_running_loop().time() + seconds
        self._cache[host] = _Cached(addresses, flaw, until)
        if len(self._cache) > self._cached_max:
            del self._cache[next(iter(self._cache))]
