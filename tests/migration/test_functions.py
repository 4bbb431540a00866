"""Functions, views and triggers: one text each, applied when it is newer, in the right order."""

import asyncpg
import pytest

from penstock.postgres.errors import BadMigration
from penstock.postgres.functions import read_functions
from penstock.postgres.migrate import migrate
from penstock.postgres.pool import Connection
from tests.migration.owner import Owner

ONE = "CREATE OR REPLACE FUNCTION public.answer() RETURNS int RETURN 1;"
TWO = "CREATE OR REPLACE FUNCTION public.answer() RETURNS int RETURN 2;"
TEXT = "CREATE OR REPLACE FUNCTION public.answer() RETURNS text RETURN 'two';"
VIEW = "CREATE OR REPLACE VIEW public.answers AS SELECT public.answer();"


async def answer(connection: Connection) -> object:
    return await connection.fetchval("SELECT answer()")


async def applied_at(connection: Connection, name: str) -> object:
    return await connection.fetchval(
        "SELECT applied_at FROM penstock.function_version WHERE name = $1", name
    )


async def test_a_text_is_applied_again_only_when_it_has_changed(
    connection: Connection, owner: Owner
) -> None:
    owner.define("answer", ONE)
    owner.define("other", ONE.replace("answer", "other"))
    first = await migrate(connection, [owner.name])
    at = await applied_at(connection, "other")
    again = await migrate(connection, [owner.name])

    owner.define("answer", TWO)
    changed = await migrate(connection, [owner.name])

    assert first[-1] == f"{owner.name}/functions (2)"
    assert again == []
    assert changed == [f"{owner.name}/functions/answer"]
    assert await answer(connection) == 2
    assert await applied_at(connection, "other") == at


async def test_a_text_that_is_being_written_is_applied_at_every_change(
    connection: Connection, owner: Owner
) -> None:
    """The history is recorded once, before a commit, and not at every try."""
    owner.define("answer", ONE)
    await migrate(connection, [owner.name])
    for number in (7, 8):
        owner.define("answer", ONE.replace("1", str(number)), is_recorded=False)
        await migrate(connection, [owner.name])

        assert await answer(connection) == number


@pytest.mark.parametrize("skipped", [False, True], ids=["next", "skipped"])
async def test_an_older_text_never_replaces_a_newer_one(
    connection: Connection, owner: Owner, skipped: bool
) -> None:
    """Also on a database that never had the older text, because its release was left out."""
    owner.define("answer", ONE)
    if not skipped:
        await migrate(connection, [owner.name])
    older = owner.release()
    owner.define("answer", TWO)
    await migrate(connection, [owner.name])

    owner.install(older)
    applied = await migrate(connection, [owner.name])

    assert applied == []
    assert await answer(connection) == 2


async def test_a_newer_release_may_go_back_to_an_earlier_text(
    connection: Connection, owner: Owner
) -> None:
    """A revert is a newer text, although it was applied before."""
    for text in (ONE, TWO):
        owner.define("answer", text)
        await migrate(connection, [owner.name])
    between = owner.release()
    owner.define("answer", ONE)

    reverted = await migrate(connection, [owner.name])
    owner.install(between)
    beside = await migrate(connection, [owner.name])

    assert reverted == [f"{owner.name}/functions/answer"]
    assert beside == []
    assert await answer(connection) == 1


async def test_texts_are_applied_after_those_that_they_refer_to(
    connection: Connection, owner: Owner
) -> None:
    """Whatever their names are: a view needs the function that it calls."""
    owner.define("a_view", "CREATE OR REPLACE VIEW public.a_view AS SELECT public.m_number() AS n;")
    owner.define(
        "m_number", "CREATE OR REPLACE FUNCTION public.m_number() RETURNS int RETURN public.z();"
    )
    owner.define("z", "CREATE OR REPLACE FUNCTION public.z() RETURNS int RETURN 3;")
    owner.define(
        "b_refuse",
        "CREATE OR REPLACE TRIGGER b_refuse INSTEAD OF DELETE ON public.a_view\n"
        "FOR EACH ROW EXECUTE FUNCTION public.y();",
    )
    owner.define(
        "y",
        "CREATE OR REPLACE FUNCTION public.y() RETURNS trigger LANGUAGE plpgsql AS\n"
        "$$ BEGIN RAISE EXCEPTION 'no'; END $$;",
    )

    await migrate(connection, [owner.name])

    assert await connection.fetchval("SELECT n FROM a_view") == 3
    with pytest.raises(asyncpg.RaiseError, match="no"):
        await connection.execute("DELETE FROM a_view")


async def test_texts_that_refer_to_each_other_are_refused(
    connection: Connection, owner: Owner
) -> None:
    for name, other in (("ping", "pong"), ("pong", "ping")):
        text = f"CREATE OR REPLACE FUNCTION public.{name}() RETURNS int RETURN public.{other}();"
        owner.define(name, text, is_recorded=False)

    with pytest.raises(BadMigration, match=r"public\.ping, public\.pong: these refer to"):
        await migrate(connection, [owner.name])


@pytest.mark.parametrize(
    "text",
    [
        "CREATE FUNCTION public.answer() RETURNS int RETURN 1;",
        "CREATE OR REPLACE FUNCTION public.question() RETURNS int RETURN 1;",
        "CREATE TABLE public.answer ();",
    ],
)
async def test_a_file_that_is_not_one_replaceable_object_is_refused(
    owner: Owner, text: str
) -> None:
    owner.define("answer", text, is_recorded=False)

    with pytest.raises(BadMigration, match=r"answer.sql: must be CREATE OR REPLACE"):
        read_functions(owner.name)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TEXT, "two"),
        ("CREATE OR REPLACE FUNCTION public.answer(n int DEFAULT 3) RETURNS int RETURN n;", 3),
    ],
    ids=["return type", "parameters"],
)
async def test_a_changed_signature_replaces_the_function_and_what_uses_it(
    connection: Connection, owner: Owner, *, text: str, expected: object
) -> None:
    """CREATE OR REPLACE would refuse the one, and leave two functions of the other."""
    owner.define("answer", ONE)
    owner.define("answers", VIEW)
    await migrate(connection, [owner.name])
    owner.define("answer", text)

    await migrate(connection, [owner.name])

    assert await answer(connection) == expected
    assert await connection.fetchval("SELECT answer FROM answers") == expected
    count = await connection.fetchval("SELECT count(*) FROM pg_proc WHERE proname = 'answer'")
    assert count == 1


async def test_a_view_may_lose_columns(connection: Connection, owner: Owner) -> None:
    owner.define("pair", "CREATE OR REPLACE VIEW public.pair AS SELECT 1 AS a, 2 AS b;")
    await migrate(connection, [owner.name])
    owner.define("pair", "CREATE OR REPLACE VIEW public.pair AS SELECT 2 AS b;")

    await migrate(connection, [owner.name])

    assert dict((await connection.fetch("SELECT * FROM pair"))[0].items()) == {"b": 2}


async def test_what_others_built_on_a_function_is_not_dropped(
    connection: Connection, owner: Owner
) -> None:
    """A report of the user's own must not vanish in an upgrade; all of it stays as it was."""
    owner.define("answer", ONE)
    await migrate(connection, [owner.name])
    await connection.execute("CREATE VIEW report AS SELECT public.answer() AS n")
    owner.define("answer", TEXT)
    owner.define("later", ONE.replace("answer", "later"))

    with pytest.raises(BadMigration, match=r"answer: cannot be replaced .* view report"):
        await migrate(connection, [owner.name])

    assert await connection.fetchval("SELECT n FROM report") == 1
    assert await connection.fetchval("SELECT to_regproc('public.later')") is None


async def test_a_step_may_use_the_functions_of_owners_before_it(
    connection: Connection, owner: Owner
) -> None:
    """As domains call penstock.add_daily_table."""
    owner.define("answer", ONE)
    later = Owner(owner.steps.parents[1], f"later_{owner.name}")
    later.write("0001_start.sql", "CREATE TABLE pear AS SELECT public.answer() AS id;")

    await migrate(connection, [owner.name, later.name])

    assert await connection.fetchval("SELECT id FROM pear") == 1
