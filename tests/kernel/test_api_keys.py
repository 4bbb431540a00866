"""API keys: shown once, kept as a hash, refused once revoked."""

import pytest

from penstock.base.errors import InvalidInput
from penstock.kernel.api_keys import (
    SCOPES,
    Scope,
    authenticate,
    create_key,
    is_made_by,
    list_keys,
    revoke_key,
)
from penstock.kernel.errors import Unauthenticated, UnknownKey
from penstock.kernel.inspect import list_audit
from penstock.postgres.pool import Connection


async def test_a_token_authenticates_with_the_scopes_of_its_key(db: Connection) -> None:
    key, token = await create_key(db, "ci", ["produce", "read"], who="test")

    found = await authenticate(db, token)

    assert found == key
    assert (found.name, found.scopes) == ("ci", ["produce", "read"])


async def test_the_token_is_not_stored(db: Connection) -> None:
    """A reader of the database must not be able to act as a client."""
    key, token = await create_key(db, "ci", ["read"], who="test")
    secret = token.removeprefix(f"psk_{key.key_id}_")

    dumps = await db.fetch(
        "SELECT api_key::text AS line FROM penstock.api_key "
        "UNION ALL SELECT audit::text FROM penstock.audit"
    )

    assert len(secret) >= 40
    assert dumps
    assert not any(secret in row["line"] for row in dumps)


async def test_a_revoked_key_is_refused_for_good(db: Connection) -> None:
    key, token = await create_key(db, "ci", ["admin"], who="test")

    await revoke_key(db, key.key_id, who="ops")
    await revoke_key(db, key.key_id, who="ops")

    with pytest.raises(Unauthenticated):
        await authenticate(db, token)
    (listed,) = await list_keys(db)
    assert listed.revoked_at is not None


@pytest.mark.parametrize(
    "token", ["", "psk", "psk_", "psk__", "psk_a_b", "psk_\x00_b", "\ud800", "x" * 100_000]
)
async def test_a_malformed_token_is_refused(shared: Connection, token: str) -> None:
    with pytest.raises(Unauthenticated):
        await authenticate(shared, token)


async def test_the_right_id_with_the_wrong_secret_is_refused(db: Connection) -> None:
    key, token = await create_key(db, "ci", ["read"], who="test")

    for wrong in (f"psk_{key.key_id}_{'x' * 43}", token[:-1], token + "x"):
        with pytest.raises(Unauthenticated):
            await authenticate(db, wrong)


async def test_a_given_token_works_like_a_made_one(db: Connection) -> None:
    """For automation; giving it again, as every start does, changes its name and scopes."""
    await create_key(db, "first", ["read"], who="test", token="correct horse battery")

    _, token = await create_key(db, "admin", ["admin"], who="test", token="correct horse battery")

    assert token == "correct horse battery"
    assert (await authenticate(db, token)).scopes == ["admin"]
    assert len(await list_keys(db)) == 1


async def test_two_given_tokens_are_two_keys(db: Connection) -> None:
    await create_key(db, "one", ["read"], who="test", token="correct horse battery")
    await create_key(db, "two", ["read"], who="test", token="staple correct horse")

    assert [key.name for key in await list_keys(db)] == ["one", "two"]


@pytest.mark.parametrize(
    ("name", "scopes", "token", "field"),
    [
        ("", ["read"], None, "name"),
        ("x" * 101, ["read"], None, "name"),
        ("a\x00b", ["read"], None, "name"),
        ("ci", [], None, "scopes"),
        ("ci", ["root"], None, "scopes"),
        ("ci", ["read"], "short", "token"),
    ],
)
async def test_a_wrong_key_is_refused_by_the_field(
    shared: Connection, *, name: str, scopes: list[str], token: str | None, field: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        await create_key(shared, name, scopes, who="test", token=token)

    assert refused.value.field == field
    assert await list_keys(shared) == []


async def test_making_and_revoking_a_key_are_audited(db: Connection) -> None:
    key, _ = await create_key(db, "ci", ["read"], who="ann")
    await revoke_key(db, key.key_id, who="bob")

    entries = await list_audit(db, subject=key.key_id)

    assert [(entry.who, entry.action) for entry in entries] == [
        ("bob", "key.revoked"),
        ("ann", "key.created"),
    ]


async def test_revoking_what_does_not_exist_is_an_error(db: Connection) -> None:
    with pytest.raises(UnknownKey):
        await revoke_key(db, "nothing", who="ops")


@pytest.mark.parametrize("scope", SCOPES)
async def test_admin_has_every_scope_except_approve(db: Connection, scope: Scope) -> None:
    """Who administers must not become the second person of a decision by that alone."""
    admin, _ = await create_key(db, "admin", ["admin"], who="test")
    approver, _ = await create_key(db, "ann", ["approve"], who="test")

    assert admin.allows(scope) == (scope != "approve")
    assert approver.allows(scope) == (scope == "approve")


async def test_a_key_knows_the_keys_that_made_it(db: Connection) -> None:
    """A key must not approve what the key that made it has asked for, whatever is in between."""
    first, _ = await create_key(db, "first", ["admin"], who="cli:ann")
    second, _ = await create_key(db, "second", ["admin"], who=first.caller)
    third, _ = await create_key(db, "third", ["approve"], who=second.caller)
    other, _ = await create_key(db, "other", ["approve"], who="cli:ann")

    assert (first.created_by, second.created_by) == (None, first.key_id)
    assert await is_made_by(db, third.key_id, first.key_id)
    assert await is_made_by(db, first.key_id, first.key_id)
    assert not await is_made_by(db, other.key_id, first.key_id)
    assert not await is_made_by(db, first.key_id, third.key_id)


async def test_a_given_token_again_keeps_the_key_that_made_it(db: Connection) -> None:
    maker, _ = await create_key(db, "maker", ["admin"], who="test")
    token = "given-by-the-environment"
    await create_key(db, "one", ["read"], who=maker.caller, token=token)

    again, _ = await create_key(db, "one", ["approve"], who="test", token=token)

    assert again.created_by == maker.key_id


async def test_a_revoked_token_given_again_stays_revoked(db: Connection) -> None:
    """A leaked PENSTOCK_ADMIN_KEY that was revoked must not come back with the next start."""
    token = "given-by-the-environment"
    key, _ = await create_key(db, "admin", ["admin"], who="up", token=token)
    await revoke_key(db, key.key_id, who="ops")

    await create_key(db, "admin", ["admin"], who="up", token=token)

    with pytest.raises(Unauthenticated):
        await authenticate(db, token)
