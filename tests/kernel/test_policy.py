"""The definition of a lane's policy agrees with the table, the statement and itself."""

import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any, LiteralString, cast

import asyncpg
import pytest

from penstock import kernel
from penstock.base.errors import InvalidInput
from penstock.base.settings import Settings
from penstock.kernel.lane import FIELDS, Lane, create_lane, policy_of, set_lane
from penstock.postgres.pool import Connection
from tests.kernel.scene import MICROSECOND

LIMITED = {
    name: field.rule
    for name, field in FIELDS.items()
    if (field.rule.low, field.rule.high) != (None, None)
}
LANE = "mail"  # The shared lane.
UPDATE = """
UPDATE penstock.lane AS changed
SET {field} = given.{field}, backoff_base = least(given.backoff_base, given.backoff_cap)
FROM (SELECT (jsonb_populate_record(lane, $2::jsonb)).* FROM penstock.lane WHERE name = $1) AS given
WHERE changed.name = $1
"""


async def test_every_column_of_the_table_is_a_field_and_the_other_way_round(
    shared: Connection,
) -> None:
    rows = await shared.fetch(
        "SELECT column_name::text FROM information_schema.columns "
        "WHERE table_schema = 'penstock' AND table_name = 'lane'"
    )

    columns = {row["column_name"] for row in rows}

    assert columns - {"lane_id", "name", "owner", "guards", "version"} == set(FIELDS)


# Those of the dispatcher that the variables are taken from; in a table without it, 1 s and 0.1.
DEFAULTS_OF_THE_ENVIRONMENT = {"backoff_base": timedelta(seconds=30), "backoff_jitter": 0.2}
SET_BY_THE_ENVIRONMENT = {
    name: field for name, field in FIELDS.items() if field.rule.setting is not None
}


@pytest.mark.parametrize("name", SET_BY_THE_ENVIRONMENT)
def test_a_variable_for_new_lanes_has_the_default_and_the_range_of_its_field(name: str) -> None:
    """The environment is read below the kernel, and repeats what it cannot import."""
    field = SET_BY_THE_ENVIRONMENT[name]
    setting = Settings.model_fields[str(field.rule.setting)]
    limits = {
        limit: getattr(each, limit)
        for each in setting.metadata
        for limit in ("ge", "le", "gt", "lt")
        if hasattr(each, limit)
    }

    default = DEFAULTS_OF_THE_ENVIRONMENT.get(name, field.default)
    # Without a low limit, a duration is above 0; the base is at most the cap, whatever that is.
    low = {"gt": timedelta(0)} if field.rule.low is None else {"ge": field.rule.low}
    high = {} if field.rule.high is None else {"le": field.rule.high}
    assert (setting.default, limits) == (default, low | high)


async def test_the_table_has_the_same_defaults(db: Connection) -> None:
    lane = await create_lane(db, "plain", who="test")

    assert policy_of(lane) == {name: field.default for name, field in FIELDS.items()}
    assert lane == Lane(lane_id=lane.lane_id, name="plain", version=1)


def test_the_function_that_changes_a_policy_writes_every_field() -> None:
    function = Path(kernel.__path__[0], "functions", "set_lane.sql").read_text(encoding="utf-8")

    written = re.findall(r"^ +(?:SET )?(\w+) = given\.\1,$", function, re.MULTILINE)

    assert written == list(FIELDS)


def test_the_fields_with_limits_are_all_but_a_few() -> None:
    """The next test would pass if it looked at none."""
    assert set(FIELDS) - set(LIMITED) == {
        "enabled", "key_limits", "backoff_base", "ordering", "on_dead_head", "on_lost",
        "error_detail", "slot_pool",
    }  # fmt: skip


@pytest.mark.parametrize("name", LIMITED)
async def test_the_table_has_the_same_limits(
    shared: Connection, shared_lane: Lane, name: str
) -> None:
    """The message of a refusal and the reference page take them from the definition."""
    assert shared_lane.name == LANE
    rule = LIMITED[name]

    for limit, sign in ((rule.low, -1), (rule.high, 1)):
        if limit is not None:
            assert await refusal(shared, name, limit) == ""
            beyond = await refusal(shared, name, limit + sign * step(limit))
            assert beyond.startswith(f"{name}_is_")


async def refusal(db: Connection, name: str, value: object) -> str:
    """Return which constraint of the table refuses the value, if any; change nothing."""
    transaction = db.transaction()
    await transaction.start()
    try:
        await db.execute(
            cast("LiteralString", UPDATE.format(field=name)),
            LANE,
            json.dumps({name: FIELDS[name].to_json(value)}),
        )
    except asyncpg.CheckViolationError as refused:
        return str(getattr(refused, "constraint_name", ""))
    finally:
        await transaction.rollback()
    return ""


def step(limit: float | timedelta) -> Any:
    if isinstance(limit, timedelta):
        return MICROSECOND
    return 1 if isinstance(limit, int) else limit / 1_000


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("batch_size", 0, "must be 1 to 10,000"),
        ("lease", timedelta(0), "must be 1 second to 1 day"),
        ("rate", 0, "must be 0.001 to 1,000,000, or none"),
        ("ordering", "fifo", "must be none or per_key"),
        ("on_dead_head", None, "must be block, park or skip, not None"),
        ("enabled", None, "must be true or false, not None"),
        ("concurrency", 1.5, "must be a whole number, not 1.5"),
        ("backoff_jitter", "0.1", "must be a number, not '0.1'"),
        ("retention", 5, "must be a duration"),
        ("backoff_cap", timedelta(days=31), "must be at most 30 days"),
    ],
)
async def test_a_refusal_says_what_is_allowed(
    shared: Connection, shared_lane: Lane, *, name: str, value: Any, message: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        await set_lane(shared, shared_lane.name, who="test", **{name: value})

    assert (refused.value.field, refused.value.reason) == (name, message)
