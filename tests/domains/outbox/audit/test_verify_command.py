"""`penstock outbox verify`: what it prints, and its exit code."""

import json
import threading
from collections.abc import Callable, Generator
from datetime import UTC, date, datetime

import pytest

from penstock.base.settings import read_once
from penstock.domains.outbox.audit.retain import drop_month, open_months
from penstock.domains.outbox.commands.verify import verify
from penstock.postgres.pool import Pool
from tests.domains.outbox.audit.archived import add, seal_all, tamper

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(
    dsn: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Generator[Run]:
    """The command on this test's own database; returns exit code, output and messages."""
    monkeypatch.setenv("PENSTOCK_DATABASE_URL", dsn)
    read_once.cache_clear()

    def run_command(*arguments: str) -> tuple[int, str, str]:
        codes: list[int] = []

        def run_main() -> None:
            try:
                verify.main(arguments)
            except SystemExit as ended:
                codes.append(int(ended.code or 0))

        # In a thread: the command runs an event loop, and the test's loop runs in this one.
        thread = threading.Thread(target=run_main)
        thread.start()
        thread.join()
        printed = capsys.readouterr()
        return codes[0], printed.out, printed.err

    yield run_command
    read_once.cache_clear()


async def test_an_untouched_archive_is_reported_as_such(db: Pool, run: Run) -> None:
    await add(db, 5)
    await seal_all(db, rows_max=2)

    code, out, err = run()

    assert (code, out) == (0, "")
    assert "nothing is wrong" in err
    assert "5 rows in 3 seals compared, 0 faults, 0 rows not sealed yet" in err


async def test_a_changed_row_is_named_and_the_exit_code_is_one(db: Pool, run: Run) -> None:
    ids = await add(db, 5)
    await seal_all(db)
    await tamper(
        db, ["UPDATE penstock.outbox_attempt SET state = 'FAILED' WHERE attempt_id = $1"], ids[2]
    )

    code, out, _ = run("--json")
    text_code, text, _ = run()

    assert code == text_code == 1
    (fault,) = json.loads(out)["faults"]
    assert (fault["fault"], fault["attempt_id"]) == ("changed", str(ids[2]))
    assert str(ids[2]) in text


async def test_a_dropped_month_without_a_kept_seal_is_refused(db: Pool, run: Run) -> None:
    """It was ignored, so that a person could believe that the other months had been compared."""
    await add(db, 1)

    code, out, err = run("--dropped", "2030-01")

    assert (code, out) == (2, "")
    assert "--dropped is only for --expect" in err


async def test_a_dropped_month_is_printed_and_has_to_be_expected(db: Pool, run: Run) -> None:
    """Its rows cannot be compared any more, so a person has to know about it."""
    at = datetime(2030, 1, 15, tzinfo=UTC)
    await open_months(db, now=at)
    await add(db, 5, at=at)
    await seal_all(db)
    head = run("--head")[1].strip()
    await drop_month(db, date(2030, 1, 1))

    code, _, err = run()

    assert code == 0
    assert "2030-01 was dropped with 5 rows, as seal 2 says" in err
    assert run("--expect", head)[0] == 1
    assert run("--expect", head, "--dropped", "2030-01")[0] == 0


async def test_a_head_that_was_kept_is_compared(db: Pool, run: Run) -> None:
    await add(db, 5)
    _, empty, _ = run("--head", "--json")
    await seal_all(db)

    _, head, _ = run("--head")

    assert empty.strip() == "null"
    assert run("--expect", head.strip())[0] == 0
    assert run("--expect", "1:" + "0" * 64)[0] == 1
