"""A subscription to this process that exists while it listens."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TypeAlias

from penstock.base.aio import finish
from penstock.base.errors import InvalidInput, PenstockError
from penstock.console.database import connected, migrated, operator
from penstock.domains.webhooks.commands.subscription.service import OpenService
from penstock.domains.webhooks.commands.subscription.typed_options import in_typed_words
from penstock.domains.webhooks.subscription import NewSubscription

GRACE = timedelta(seconds=5)  # To create or delete it in spite of Ctrl-C.

# Takes a URL that the egress rules refuse, and returns what to set.
HintAt: TypeAlias = Callable[[str], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TemporarySubscriptions:
    """Creates and deletes subscriptions."""

    open_service: OpenService
    hint_at: HintAt

    @asynccontextmanager
    async def subscribed(self, new: NewSubscription, data_dir: Path | None) -> AsyncGenerator[str]:
        """Create a subscription, yield its id while the body runs, and delete it in any case."""
        created: list[str] = []
        try:
            # Cancelled between the commit and its response, the id to delete would be unknown.
            await finish(self._create(new, data_dir, created), within=GRACE)
            (subscription_id,) = created
            yield subscription_id
        finally:
            for each in created:
                await finish(self._delete(each, data_dir), within=GRACE)

    async def _create(
        self, new: NewSubscription, data_dir: Path | None, created: list[str]
    ) -> None:
        service = self.open_service(data_dir)
        async with connected(data_dir) as db:
            with migrated(), in_typed_words(event_types="--subscribe"):
                try:
                    found, _ = await service.create(db, new, who=operator())
                except InvalidInput as refused:
                    if refused.field != "url":
                        raise
                    reason = f"{new.url} {refused.reason}; {self.hint_at(new.url)}"
                    raise InvalidInput("--subscribe", reason) from refused
        created.append(found.id)

    async def _delete(self, subscription_id: str, data_dir: Path | None) -> None:
        try:
            async with connected(data_dir) as db:
                changes = {"state": "deleted"}
                service = self.open_service(data_dir)
                await service.change(db, subscription_id, changes, who=operator())
        except PenstockError as failure:
            failure.add_note(f"delete it yourself: penstock subscription delete {subscription_id}")
            raise
