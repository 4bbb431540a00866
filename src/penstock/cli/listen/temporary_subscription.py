"""A subscription to this process that exists while it listens."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from penstock.base.aio import finish
from penstock.base.errors import InvalidInput, PenstockError
from penstock.base.settings import section
from penstock.compose.egress import EgressSettings
from penstock.compose.webhooks import open_subscriptions
from penstock.console.database import connected, migrated, operator
from penstock.domains.webhooks.commands.subscription.typed_options import in_typed_words
from penstock.domains.webhooks.subscription import NewSubscription

GRACE = timedelta(seconds=5)  # To create or delete it in spite of Ctrl-C.


@asynccontextmanager
async def subscribed(new: NewSubscription, data_dir: Path | None) -> AsyncGenerator[str]:
    """Create a subscription, yield its id while the body runs, and delete it in any case."""
    made: list[str] = []
    try:
        # Cancelled between the commit and its response, the id to delete would be unknown.
        await finish(_create(new, data_dir, made), within=GRACE)
        (subscription_id,) = made
        yield subscription_id
    finally:
        for each in made:
            await finish(_delete(each, data_dir), within=GRACE)


async def _create(new: NewSubscription, data_dir: Path | None, made: list[str]) -> None:
    async with connected(data_dir) as db:
        with migrated(), in_typed_words(event_types="--subscribe"):
            try:
                found, _ = await open_subscriptions(data_dir).create(db, new, who=operator())
            except InvalidInput as refused:
                if refused.field != "url":
                    raise
                raise InvalidInput("--subscribe", _hint(new.url, refused)) from refused
    made.append(found.id)


async def _delete(subscription_id: str, data_dir: Path | None) -> None:
    try:
        async with connected(data_dir) as db:
            changes = {"state": "deleted"}
            await open_subscriptions(data_dir).change(db, subscription_id, changes, who=operator())
    except PenstockError as failure:
        failure.add_note(f"delete it yourself: penstock subscription delete {subscription_id}")
        raise


def _hint(url: str, refused: InvalidInput) -> str:
    """Say which setting allows this URL."""
    place = urlsplit(url)
    ports = section(EgressSettings).egress_ports
    if ports and place.port not in ports:
        return f"{url} {refused.reason}; give --port one of PENSTOCK_EGRESS_PORTS"
    address = ip_address(place.hostname or "")
    network = "127.0.0.0/8" if address.is_loopback and address.version == 4 else str(address)
    return (
        f"{url} {refused.reason};"
        f" set PENSTOCK_EGRESS_ALLOW={network}, here and where the worker runs"
    )
