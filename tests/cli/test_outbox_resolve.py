"""`penstock outbox resolve`: a person decides about instructions that may have been paid."""

import pytest

from penstock import Penstock
from penstock.base.settings import read_once
from penstock.domains.outbox.lanes import LANE
from penstock.kernel.claim import Cursor, Lease, claim
from penstock.kernel.lane import read_lane
from penstock.kernel.sweep import sweep
from penstock.postgres.pool import Pool
from tests.cli.conftest import Cli
from tests.cli.output import answer

WHY = ("--reason", "asked the bank")


@pytest.fixture
async def doubtful(cli: Cli, dsn: str) -> list[str]:
    """Three instructions of three participants, whose worker died after the call had begun."""
    async with Penstock(dsn) as app:
        sent = [send(cli, number) for number in range(3)]
        async with app.pool.acquire() as db:
            lane = await read_lane(db, LANE)
            lease = await claim(db, lane.lane_id, Cursor(), limit=10, worker="dies")
            assert isinstance(lease, Lease)
            await db.execute(
                "UPDATE penstock.lease SET started_ids = item_ids, "
                "expires_at = claimed_at + interval '1 us'"
            )
        await sweep(app.pool, meter=app.meter, log=app.log)
    return sent


def send(cli: Cli, number: int) -> str:
    sent = cli(
        "outbox", "send", f"i-{number}", "--participant", f"p-{number}", "--key", f"k-{number}",
        "--rail", "sepa", "--currency", "EUR", "--amount", "12.50",
        "--destination", '{"iban": "DE89370400440532013000"}', "--json",
    )  # fmt: skip
    return answer(sent)["outbox_id"]


def state(cli: Cli, outbox_id: str) -> str:
    return answer(cli("outbox", "show", outbox_id, "--json"))["instruction"]["state"]


async def announced(db: Pool) -> list[str]:
    rows = await db.fetch("SELECT type FROM penstock.events ORDER BY type")
    return [row["type"] for row in rows]


async def test_each_resolution_ends_or_releases_and_is_announced(
    cli: Cli, doubtful: list[str], db: Pool
) -> None:
    """A receiver that heard of a doubt must hear of its end, also if a person found it out."""
    paid, failed, again = doubtful

    resolved = cli("outbox", "resolve", paid, "--as", "paid", "--reference", "b-7", *WHY, "--json")
    assert answer(resolved) == {"outbox_id": paid, "resolution": "paid"}
    assert cli("outbox", "resolve", failed, "--as", "failed", *WHY).code == 0
    assert cli("outbox", "resolve", again, "--as", "again", *WHY).code == 0

    assert [state(cli, each) for each in doubtful] == ["DISPATCHED", "FAILED", "PENDING"]
    shown = answer(cli("outbox", "show", paid, "--json"))
    assert shown["instruction"]["rail_reference"] == "b-7"
    assert await announced(db) == ["outbox.dispatched", "outbox.failed", *["outbox.unknown"] * 3]


@pytest.fixture
def doubtful_alone(doubtful: list[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The same, for commands in an environment without webhooks."""
    monkeypatch.setenv("PENSTOCK_DOMAINS", "outbox")
    read_once.cache_clear()
    return doubtful


async def test_without_webhooks_nothing_is_announced(
    cli: Cli, doubtful_alone: list[str], db: Pool
) -> None:
    assert cli("outbox", "resolve", doubtful_alone[0], "--as", "failed", *WHY).code == 0

    assert await announced(db) == []


def test_many_are_counted_first_and_then_decided(cli: Cli, doubtful: list[str]) -> None:
    every = ("outbox", "resolve", "--all", "--as", "failed", *WHY, "--json")

    counted = answer(cli(*every, "--participant", "p-1", "--dry-run"))
    asked = cli(*every)
    decided = answer(cli(*every, "--yes"))
    rest = answer(cli(*every, "--yes"))

    assert counted == {"matched": 1}
    assert asked.code != 0, "without a terminal it must not decide"
    assert decided == {"matched": 3, "changed": 3, "unchanged": 0}
    assert rest == {"matched": 0}
    assert {state(cli, each) for each in doubtful} == {"FAILED"}


@pytest.mark.parametrize(
    "arguments",
    [
        ("--as", "failed"),
        ("ID", "--all", "--as", "failed"),
        ("ID", "--as", "failed", "--dry-run"),
        ("ID", "--as", "failed", "--participant", "p-1"),
        ("ID", "--as", "paid"),
        ("ID", "--as", "failed", "--reference", "b-7"),
        ("--all", "--yes", "--as", "paid", "--reference", "b-7"),
        ("ID", "--as", "perhaps"),
    ],
    ids=["nothing", "both", "dry run of one", "filter of one", "paid without a reference",
         "failed with one", "all paid", "another word"],
)  # fmt: skip
def test_half_a_decision_is_refused(
    cli: Cli, doubtful: list[str], arguments: tuple[str, ...]
) -> None:
    given = [doubtful[0] if each == "ID" else each for each in arguments]

    assert cli("outbox", "resolve", *given, *WHY).code == 2
    assert state(cli, doubtful[0]) == "UNKNOWN"


def test_what_is_not_in_doubt_is_refused(cli: Cli, doubtful: list[str]) -> None:
    cli("outbox", "resolve", doubtful[0], "--as", "failed", *WHY)

    again = cli("outbox", "resolve", doubtful[0], "--as", "again", *WHY)

    assert again.code == 3
    assert "not in doubt" in again.err
    assert state(cli, doubtful[0]) == "FAILED"
