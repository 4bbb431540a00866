"""Codes are rows: the shipped ones are the files, and a change needs no release."""

from collections import Counter

import pytest

from penstock.base.errors import InvalidInput
from penstock.domains.outbox.errors import UnknownCode
from penstock.domains.outbox.rails.codes import (
    Code,
    list_codes,
    put_code,
    remove_code,
    shipped_codes,
)
from penstock.postgres.pool import Pool


async def test_a_new_database_has_the_shipped_codes(db: Pool) -> None:
    stored = await list_codes(db)

    assert {
        (each.code_set, each.code, each.code_class, each.meaning, each.source) for each in stored
    } == {
        (each.code_set, each.code, each.code_class, each.meaning, each.source)
        for each in shipped_codes()
    }


def test_every_shipped_code_has_a_meaning_and_a_source() -> None:
    codes = list(shipped_codes())

    assert all(each.meaning and each.source for each in codes)
    assert Counter((each.code_set, each.code) for each in codes).most_common(1)[0][1] == 1
    assert Counter(each.code_set for each in codes) == {
        "http": 16, "iso20022": 199, "nacha": 71, "simulator": 7,
    }  # fmt: skip


@pytest.mark.parametrize("code", ["AM05", "DUPL", "DU03", "R24", "HTTP_409", "HTTP_500", "AB05"])
def test_a_duplicate_or_a_timeout_at_the_rail_is_unknown(code: str) -> None:
    """The first one may be paid; as a failure it could be sent again under another key."""
    assert {each.code_class for each in shipped_codes() if each.code == code} == {"unknown"}


async def test_a_changed_code_is_kept_and_audited(db: Pool) -> None:
    made = Code(code_set="iso20022", code="AM04", code_class="terminal", meaning="m", source="s")

    async with db.acquire() as connection:
        await put_code(connection, made, who="test")
        changed = await list_codes(connection, "iso20022")
        logged = await connection.fetchrow(
            "SELECT who, action, subject, before::text AS before, after::text AS after"
            " FROM penstock.audit ORDER BY audit_id DESC LIMIT 1"
        )

    assert [each.code_class for each in changed if each.code == "AM04"] == ["terminal"]
    assert logged is not None
    assert tuple(logged) == (
        "test", "outbox_code.changed", "iso20022 AM04",
        '{"class": "retryable"}', '{"class": "terminal"}',
    )  # fmt: skip


async def test_a_removed_code_is_gone(db: Pool) -> None:
    async with db.acquire() as connection:
        await remove_code(connection, "nacha", "R01", who="test")
        with pytest.raises(UnknownCode):
            await remove_code(connection, "nacha", "R01", who="test")

        assert "R01" not in {each.code for each in await list_codes(connection, "nacha")}


@pytest.mark.parametrize(
    "code",
    [
        Code(code_set="Upper", code="X", code_class="paid"),
        Code(code_set="own", code="", code_class="paid"),
        Code(code_set="own", code="X" * 65, code_class="paid"),
        Code(code_set="own", code="X", code_class="maybe"),  # pyright: ignore[reportArgumentType]
        Code(code_set="own", code="X", code_class="paid", meaning="m" * 201),
    ],
)
async def test_a_code_that_the_table_refuses_is_refused_with_its_field(
    db: Pool, code: Code
) -> None:
    async with db.acquire() as connection:
        with pytest.raises(InvalidInput):
            await put_code(connection, code, who="test")
