"""Turn a target into addresses that have been checked; the connection goes to one of these."""

import asyncio
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta

from penstock.integrations.http_client.egress import Egress, EgressRefused
from penstock.integrations.http_client.failure import failure, within
from penstock.integrations.http_client.target import Target

# Blocks, and raises OSError if there is no answer.
Lookup = Callable[[str], Sequence[str]]

# A name server that does not answer holds a thread for 5 to 30 s. A loop has few threads, and
# they are everybody's; strangers' names get their own, so that they can only delay each other.
THREADS_MAX = 16
PENDING_MAX = 1_000  # Whoever stands in a longer line is not answered in time anyway.
REMEMBERED_MAX = 10_000  # A few megabytes; strangers choose how many names there are.
# A burst to a dead name asks once, and a name that comes alive is soon seen.
FAILURE_TTL = timedelta(seconds=1)


def look_up(host: str) -> Sequence[str]:
    """Ask the system for all addresses of a name, in the order in which to try them."""
    # As bytes, because a string would pass through a codec with ideas of its own about names.
    found = socket.getaddrinfo(host.encode("ascii"), None, type=socket.SOCK_STREAM)
    return [str(place[0]) for *_, place in found]


@dataclass(frozen=True, slots=True)
class _Remembered:
    """The addresses of a name, or why there are none; believed until an instant of the loop."""

    addresses: Sequence[str]
    flaw: str
    until: float


class Resolver:
    """Asks for each name once at a time and believes the answer for `ttl`."""

    def __init__(
        self,
        egress: Egress,
        *,
        ttl: timedelta,
        lookup: Lookup = look_up,
        remembered_max: int = REMEMBERED_MAX,
    ) -> None:
        self._egress = egress
        self._remembered_max = remembered_max
        self._ttl = ttl.total_seconds()
        self._lookup = lookup
        self._threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="penstock-lookup")
        self._pending: dict[str, asyncio.Future[Sequence[str]]] = {}
        self._remembered: dict[str, _Remembered] = {}

    async def resolve(self, target: Target, *, until: float) -> Sequence[str]:
        """Return the addresses of a target, all of them checked; raises CallFailed.

        One bad address is enough to refuse a name. A name that leads to the public and to our
        own network at once is what rebinding looks like, and which of its addresses is taken
        would be up to chance. Who means it can have that network allowed.
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
            reason = f"the host's name was not found: {unknown.strerror}"
            raise failure("bad_name", reason) from unknown
        return addresses

    def close(self) -> None:
        """Answer nobody any more. A thread that waits for a name server ends when that gives up."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for question in self._pending.values():
            question.set_exception(failure("closed", "this client is closed"))
            question.exception()  # Perhaps nobody waits for it any more.
        self._pending.clear()

    async def _addresses_of(self, host: str, until: float) -> Sequence[str]:
        known = self._remembered.get(host)
        if known is None or asyncio.get_running_loop().time() >= known.until:
            # Who gives up leaves the question to the others, and to those who come next.
            async with within(until, "looking up the name"):
                return await asyncio.shield(self._pending.get(host) or self._ask(host))
        if not known.addresses:
            raise OSError(None, known.flaw)
        return known.addresses

    def _ask(self, host: str) -> "asyncio.Future[Sequence[str]]":
        if len(self._pending) >= PENDING_MAX:
            raise OSError(None, "too many names are being looked up")
        loop = asyncio.get_running_loop()
        asked = loop.run_in_executor(self._threads, self._look_up, host)
        asked.add_done_callback(lambda answered: self._answer(host, answered))
        question = self._pending[host] = loop.create_future()
        return question

    def _look_up(self, host: str) -> Sequence[str]:
        addresses = self._lookup(host)
        if not addresses:
            raise OSError(None, "it has no address")
        return addresses

    def _answer(self, host: str, answered: "asyncio.Future[Sequence[str]]") -> None:
        flaw = None if answered.cancelled() else answered.exception()
        question = self._pending.pop(host, None)
        if question is None:  # We are closed, and who asked has been told.
            return
        if flaw is None:
            addresses = answered.result()
            question.set_result(addresses)
            self._remember(host, addresses, seconds=self._ttl)
        else:
            question.set_exception(flaw)
            question.exception()  # Perhaps nobody waits for it any more.
            if isinstance(flaw, OSError):
                seconds = FAILURE_TTL.total_seconds()
                self._remember(host, (), seconds=seconds, flaw=str(flaw.strerror))

    def _remember(
        self, host: str, addresses: Sequence[str], *, seconds: float, flaw: str = ""
    ) -> None:
        self._remembered.pop(host, None)  # So that the dictionary stays in order of age.
        until = asyncio.get_running_loop().time() + seconds
        self._remembered[host] = _Remembered(addresses, flaw, until)
        if len(self._remembered) > self._remembered_max:
            del self._remembered[next(iter(self._remembered))]
