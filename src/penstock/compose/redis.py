"""The gate of a process: its own, or the one that all workers on one Redis share."""

from collections.abc import Awaitable, Callable

from pydantic import SecretStr
from pydantic_settings import BaseSettings

from penstock.base.errors import MissingExtra
from penstock.base.log import Logger
from penstock.base.meter import Meter
from penstock.base.settings import SECTION, section
from penstock.limits.gate import ProcessGate
from penstock.limits.local import LocalGate


class RedisSettings(BaseSettings):
    """Which Redis holds limits and breakers."""

    model_config = SECTION

    redis_url: SecretStr | None = None  # Secret, because it may hold a password.
    """A Redis, as `redis://host:6379/0`, in which all processes share breakers, rates and
    semaphores. Absent: each process has its own. Needs the extra `redis`."""


def choose_gate(log: Logger, meter: Meter) -> tuple[ProcessGate, Callable[[], Awaitable[None]]]:
    """Return the gate of this process, and what closes it; raises MissingExtra or BadSetting.

    While Redis is unavailable, the process decides by itself. Needs a running event loop.
    """
    url = section(RedisSettings).redis_url
    local = LocalGate()
    return (local, _close_nothing) if url is None else _share_gate(url, local, log=log, meter=meter)


async def _close_nothing() -> None: ...


def _share_gate(
    url: SecretStr, local: ProcessGate, *, log: Logger, meter: Meter
) -> tuple[ProcessGate, Callable[[], Awaitable[None]]]:
    try:
        from penstock.integrations.redis.client import connect  # noqa: PLC0415  An extra.
        from penstock.integrations.redis.fallback import FallbackGate  # noqa: PLC0415
        from penstock.integrations.redis.gate import RedisGate  # noqa: PLC0415
    except ModuleNotFoundError as absent:
        raise MissingExtra("redis", "PENSTOCK_REDIS_URL") from absent
    client = connect(url.get_secret_value())
    shared = RedisGate(client)
    gate = FallbackGate(shared, local, log=log, meter=meter)

    async def close() -> None:
        await shared.released()
        await client.aclose()

    return gate, close
