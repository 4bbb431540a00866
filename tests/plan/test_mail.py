"""Mails are loaded, found, written and retained without a walk over those that there are.

Measured as the kernel's statements are: by the pages they touch, with 60,000 mails around.
"""

from datetime import timedelta

import msgspec
import pytest

from penstock.domains.mail import dead_mails, inspect, loader, results, retain
from penstock.domains.mail.inspect import MailFilter, list_mails
from penstock.domains.mail.lanes import LANE
from penstock.domains.mail.results import ResultRow
from tests.plan.conftest import Rows
from tests.plan.explain import Explainer

PAGES_PER_MAIL = 60  # Rows and indexes of mail, result, item, ready, dead and attempt.
PAGES_ONCE = 400


@pytest.fixture(scope="module")
def rows() -> Rows:
    """With mails."""
    return "domains"


def assert_bounded(explainer: Explainer, query: str, *, mails: int) -> None:
    explained = explainer.of(query)
    assert explained.walked == []
    assert explained.buffers <= PAGES_ONCE + PAGES_PER_MAIL * mails, explained.buffers


async def some_ids(explainer: Explainer, count: int) -> list[int]:
    rows = await explainer.db.fetch(
        "SELECT id FROM penstock.mail ORDER BY id OFFSET 30000 LIMIT $1", count
    )
    return [row["id"] for row in rows]


async def test_a_batch_of_mails_is_loaded_by_its_ids(explainer: Explainer) -> None:
    ids = await some_ids(explainer, 200)

    loaded = await explainer.fetch(loader.LOAD_MAILS, ids)

    assert len(loaded) == 200
    assert_bounded(explainer, loader.LOAD_MAILS, mails=200)


async def test_mails_of_a_recipient_are_found_by_the_index(explainer: Explainer) -> None:
    page = await list_mails(
        explainer.connection(), only=MailFilter(recipient="User17@example.org"), limit=20
    )

    assert len(page.mails) == 3
    assert_bounded(explainer, inspect.FIND_MAILS_TO, mails=3)
    assert_bounded(explainer, inspect.READ_MAILS, mails=3)


async def test_mails_with_a_tag_are_found_by_the_index(explainer: Explainer) -> None:
    page = await list_mails(explainer.connection(), only=MailFilter(tag="rare-100"), limit=100)

    assert len(page.mails) == 60
    assert_bounded(explainer, inspect.FIND_MAILS_TAGGED, mails=60)
    assert_bounded(explainer, inspect.READ_MAILS, mails=60)


async def test_a_page_of_mails_is_read_from_the_end(explainer: Explainer) -> None:
    page = await list_mails(explainer.connection(), limit=20)

    assert len(page.mails) == 20
    assert_bounded(explainer, inspect.FIND_MAILS, mails=20)
    assert_bounded(explainer, inspect.READ_MAILS, mails=21)


async def test_a_page_by_status_looks_at_a_bounded_number_of_mails(explainer: Explainer) -> None:
    page = await list_mails(explainer.connection(), only=MailFilter(status="failed"), limit=20)

    assert page.mails == []
    assert page.next is not None
    assert_bounded(explainer, inspect.FIND_MAILS, mails=inspect.LOOKED_AT_MAX)
    assert_bounded(explainer, inspect.READ_MAILS, mails=inspect.LOOKED_AT_MAX)


async def test_one_mail_and_its_recipients_are_read_by_their_keys(explainer: Explainer) -> None:
    (mail_id,) = await some_ids(explainer, 1)

    await inspect.read_mail(explainer.connection(), mail_id)
    await inspect.list_recipients(explainer.connection(), mail_id)
    await inspect.list_past_results(explainer.connection(), mail_id)

    for query in (inspect.READ_MAIL, inspect.LIST_RESULTS, inspect.LIST_PAST_RESULTS):
        assert_bounded(explainer, query, mails=1)


async def test_results_are_written_at_the_cost_of_their_own_number(explainer: Explainer) -> None:
    rows = [
        ResultRow(mail_id=each, token=1, recipient_no=0, result="sent", class_="done")
        for each in await some_ids(explainer, 200)
    ]

    written = await explainer.fetch(results.WRITE_RESULTS, msgspec.json.encode(rows).decode())

    assert sum(row["is_new"] for row in written) == 200
    assert_bounded(explainer, results.WRITE_RESULTS, mails=200)


async def test_mails_that_have_just_died_are_found_by_their_time(explainer: Explainer) -> None:
    newest = await explainer.db.fetchval(
        "SELECT max(died_at) FROM penstock.dead JOIN penstock.lane USING (lane_id) WHERE name = $1",
        LANE,
    )
    since = newest - timedelta(seconds=100)

    page = await explainer.fetch(dead_mails.LIST_DEAD_MAILS, LANE, since, 0, 1_000)
    written = await explainer.fetch(
        dead_mails.FAIL_RECIPIENTS, [row["id"] for row in page if row["is_open"]], None
    )

    assert 0 < len(page) <= 200
    assert 0 < len(written) <= len(page)
    assert_bounded(explainer, dead_mails.LIST_DEAD_MAILS, mails=200)
    assert_bounded(explainer, dead_mails.FAIL_RECIPIENTS, mails=200)


async def test_the_mails_of_an_attachment_are_found_by_the_index(explainer: Explainer) -> None:
    row = await explainer.fetchrow(
        retain.REMOVE_UNUSED_BLOBS, retain.BLOBS_MAX, retain.BLOB_UNUSED_DAYS, None
    )

    assert row is not None
    assert (row["examined"], row["removed"]) == (retain.BLOBS_MAX, 0)
    assert_bounded(explainer, retain.REMOVE_UNUSED_BLOBS, mails=retain.BLOBS_MAX)
