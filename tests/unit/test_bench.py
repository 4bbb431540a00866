"""The bench is no part of a build, and must still start after every change."""

from typing import Any

from bench.bars import CASES
from bench.readme import JOBS, measured


def test_the_bench_has_cases_of_the_kernel_and_of_every_domain() -> None:
    wanted = {
        "drain",
        "slots_batch",
        "webhooks_deliver",
        "mail_small",
        "outbox_ordered",
        "payments",
        "payments_rate",
        "temporal_rows",
    }

    assert wanted <= CASES.keys()


def test_the_table_of_the_readme_names_cases_that_there_are() -> None:
    assert {case for cases in JOBS.values() for case in cases} <= CASES.keys()


def test_the_table_of_the_readme_has_one_line_for_each_case_and_the_later_result() -> None:
    first, second = result("drain", 2.0), result("drain", 3.0)

    text = measured([first, second])

    where = "Measured on 2026-11-17 on 2 CPUs with 24 GiB, Python 3.11.7, in short runs"
    assert text.startswith(where)
    assert text.splitlines()[4:] == [
        "| kernel | items | 30,000/s, 3 times other: 10,000/s | ≥ 1.5 times | met |"
    ]


def test_the_table_of_the_readme_has_every_row_that_misses_its_bar() -> None:
    found = result("drain", 2.0)
    found["rows"].append(found["rows"][1] | {"name": "slow ones", "verdict": "missed"})

    lines = measured([found]).splitlines()[4:]

    assert [line.split(" | ")[1] for line in lines] == ["items", "slow ones"]
    assert lines[1].endswith("| missed |")


def result(case: str, ratio: float) -> dict[str, Any]:
    row = {
        "case": case,
        "name": "items",
        "unit": "/s",
        "ours": ratio * 10_000,
        "against": "other",
        "theirs": 10_000.0,
        "ratio": ratio,
        "bar": "≥ 1.5 times",
        "verdict": "met",
    }
    return {
        "started_at": "2026-11-17T12:00:00+00:00",
        "options": {"quick": True},
        "machine": {"cpus": 2, "memory_bytes": 24 << 30, "python": "3.11.7"},
        "rows": [row | {"verdict": "shown", "bar": "—"}, row, row | {"name": "less"}],
    }
