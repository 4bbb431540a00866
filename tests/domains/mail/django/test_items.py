"""Items of any lane, enqueued on Django's own connection."""

from contextlib import suppress

import pytest
from django.db import connection, transaction

from penstock.base.errors import InvalidInput
from penstock.kernel.enqueue import enqueue, enqueue_blocking
from penstock.kernel.errors import KeyConflict, UnknownLane
from penstock.kernel.item import NewItem
from penstock.kernel.lane import create_lane
from tests.domains.mail.django.project import Project
from tests.domains.mail.django.scene import RolledBack
from tests.domains.mail.outbox import Outbox


async def test_an_item_is_part_of_djangos_transaction(project: Project, outbox: Outbox) -> None:
    """A caller catches the same errors as with any other driver."""
    async with outbox.app.pool.acquire() as db:
        await create_lane(db, "reports", who="test")

    def work() -> None:
        with suppress(RolledBack), transaction.atomic():
            enqueue_blocking(connection, "reports", NewItem(payload=1))
            raise RolledBack
        enqueue_blocking(connection, "reports", NewItem(payload=2, key="k"))
        with pytest.raises(KeyConflict):
            enqueue_blocking(connection, "reports", NewItem(payload=3, key="k"))
        with pytest.raises(UnknownLane):
            enqueue_blocking(connection, "nowhere", NewItem(payload=1))

    await project.run(work)

    assert await outbox.app.pool.fetchval("SELECT count(*) FROM penstock.item") == 1


async def test_a_connection_that_blocks_is_refused_in_async_code(project: Project) -> None:
    del project
    with pytest.raises(InvalidInput, match=r"^connection: .* not of django$"):
        await enqueue(connection, "reports", NewItem(payload=1))
