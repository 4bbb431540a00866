"""The gate that all workers on one Redis share. Needs the extra `redis`."""

from collections.abc import Awaitable, Callable

from pydantic import SecretStr
from pydantic_settings import BaseSettings

from penstock.base.errors import MissingExtra
from penstock.base.settings import SECTION
from penstock.contract import Resources
from penstock.limits.gate import Gate


class RedisSettings(BaseSettings):
    """Which Redis holds limits and breakers."""

    model_config = SECTION

    redis_url: SecretStr | None = None  # Secret, because it may hold a password.
    """A Redis, as `redis://host:6379/0`, in which all processes share breakers, rates and
    semaphores. Absent: each process has its own. Needs the extra `redis`."""


def share_gate(
    url: SecretStr, local: Gate, resources: Resources
) -> tuple[Gate, Callable[[], Awaitable[None]]]:
    """Return the gate of all workers on one Redis, and what closes it.

    `local` decides while Redis is unavailable.
    """
    try:
        from penstock.integrations.redis.client import connect  # noqa: PLC0415  An extra.
        from penstock.integrations.redis.fallback import FallbackGate  # noqa: PLC0415
        from penstock.integrations.redis.gate import RedisGate  # noqa: PLC0415
    except ModuleNotFoundError as absent:
        raise MissingExtra("redis", "PENSTOCK_REDIS_URL") from absent
    client = connect(url.get_secret_value())
    shared = RedisGate(client)
    gate = FallbackGate(shared, local, log=resources.log, meter=resources.meter)

    async def close() -> None:
        await shared.released()
        await client.aclose()

    return gate, close
