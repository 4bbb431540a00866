"""Functions, views and triggers: one text each, applied when it is newer, in the right order."""

import asyncpg
import pytest

from penstock.postgres.errors import BadMigration
from penstock.postgres.functions import read_functions
from penstock.postgres.migrate import migrate
from penstock.postgres.pool import Connection
from tests.migration.package import MigrationPackage

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
    connection: Connection, package: MigrationPackage
) -> None:
    package.define("answer", ONE)
    package.define("other", ONE.replace("answer", "other"))
    first = await migrate(connection, [package.name])
    at = await applied_at(connection, "other")
    again = await migrate(connection, [package.name])

    package.define("answer", TWO)
    changed = await migrate(connection, [package.name])

    assert first[-1] == f"{package.name}/functions (2)"
    assert again == []
    assert changed == [f"{package.name}/functions/answer"]
    assert await answer(connection) == 2
    assert await applied_at(connection, "other") == at


async def test_a_text_that_is_being_written_is_applied_at_every_change(
    connection: Connection, package: MigrationPackage
) -> None:
    """The history is recorded once, before a commit, and not at every try."""
    package.define("answer", ONE)
    await migrate(connection, [package.name])
    for number in (7, 8):
        package.define("answer", ONE.replace("1", str(number)), is_recorded=False)
        await migrate(connection, [package.name])

        assert await answer(connection) == number


@pytest.mark.parametrize("skipped", [False, True], ids=["next", "skipped"])
async def test_an_older_text_never_replaces_a_newer_one(
    connection: Connection, package: MigrationPackage, skipped: bool
) -> None:
    """Also on a database that never had the older text, because its release was left out."""
    package.define("answer", ONE)
    if not skipped:
        await migrate(connection, [package.name])
    older = package.release()
    package.define("answer", TWO)
    await migrate(connection, [package.name])

    package.install(older)
    applied = await migrate(connection, [package.name])

    assert applied == []
    assert await answer(connection) == 2


async def test_a_newer_release_may_go_back_to_an_earlier_text(
    connection: Connection, package: MigrationPackage
) -> None:
    """A revert is a newer text, although it was applied before."""
    for text in (ONE, TWO):
        package.define("answer", text)
        await migrate(connection, [package.name])
    between = package.release()
    package.define("answer", ONE)

    reverted = await migrate(connection, [package.name])
    package.install(between)
    beside = await migrate(connection, [package.name])

    assert reverted == [f"{package.name}/functions/answer"]
    assert beside == []
    assert await answer(connection) == 1


async def test_texts_are_applied_after_those_that_they_refer_to(
    connection: Connection, package: MigrationPackage
) -> None:
    """Whatever their names are: a view needs the function that it calls."""
    package.define(
        "a_view", "CREATE OR REPLACE VIEW public.a_view AS SELECT public.m_number() AS n;"
    )
    package.define(
        "m_number", "CREATE OR REPLACE FUNCTION public.m_number() RETURNS int RETURN public.z();"
    )
    package.define("z", "CREATE OR REPLACE FUNCTION public.z() RETURNS int RETURN 3;")
    package.define(
        "b_refuse",
        "CREATE OR REPLACE TRIGGER b_refuse INSTEAD OF DELETE ON public.a_view\n"
        "FOR EACH ROW EXECUTE FUNCTION public.y();",
    )
    package.define(
        "y",
        "CREATE OR REPLACE FUNCTION public.y() RETURNS trigger LANGUAGE plpgsql AS\n"
        "$$ BEGIN RAISE EXCEPTION 'no'; END $$;",
    )

    await migrate(connection, [package.name])

    assert await connection.fetchval("SELECT n FROM a_view") == 3
    with pytest.raises(asyncpg.RaiseError, match="no"):
        await connection.execute("DELETE FROM a_view")


async def test_texts_that_refer_to_each_other_are_refused(
    connection: Connection, package: MigrationPackage
) -> None:
    for name, other in (("ping", "pong"), ("pong", "ping")):
        text = f"CREATE OR REPLACE FUNCTION public.{name}() RETURNS int RETURN public.{other}();"
        package.define(name, text, is_recorded=False)

    with pytest.raises(BadMigration, match=r"public\.ping, public\.pong: these refer to"):
        await migrate(connection, [package.name])


@pytest.mark.parametrize(
    "text",
    [
        "CREATE FUNCTION public.answer() RETURNS int RETURN 1;",
        "CREATE OR REPLACE FUNCTION public.question() RETURNS int RETURN 1;",
        "CREATE TABLE public.answer ();",
    ],
)
async def test_a_file_that_is_not_one_replaceable_object_is_refused(
    package: MigrationPackage, text: str
) -> None:
    package.define("answer", text, is_recorded=False)

    with pytest.raises(BadMigration, match=r"answer.sql: must be CREATE OR REPLACE"):
        read_functions(package.name)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TEXT, "two"),
        ("CREATE OR REPLACE FUNCTION public.answer(n int DEFAULT 3) RETURNS int RETURN n;", 3),
    ],
    ids=["return type", "parameters"],
)
async def test_a_changed_signature_replaces_the_function_and_what_uses_it(
    connection: Connection, package: MigrationPackage, *, text: str, expected: object
) -> None:
    """CREATE OR REPLACE would refuse the one, and leave two functions of the other."""
    package.define("answer", ONE)
    package.define("answers", VIEW)
    await migrate(connection, [package.name])
    package.define("answer", text)

    await migrate(connection, [package.name])

    assert await answer(connection) == expected
    assert await connection.fetchval("SELECT answer FROM answers") == expected
    count = await connection.fetchval("SELECT count(*) FROM pg_proc WHERE proname = 'answer'")
    assert count == 1


async def test_a_view_may_lose_columns(connection: Connection, package: MigrationPackage) -> None:
    package.define("pair", "CREATE OR REPLACE VIEW public.pair AS SELECT 1 AS a, 2 AS b;")
    await migrate(connection, [package.name])
    package.define("pair", "CREATE OR REPLACE VIEW public.pair AS SELECT 2 AS b;")

    await migrate(connection, [package.name])

    assert dict((await connection.fetch("SELECT * FROM pair"))[0].items()) == {"b": 2}


async def test_what_others_built_on_a_function_is_not_dropped(
    connection: Connection, package: MigrationPackage
) -> None:
    """A report of the user's own must not vanish in an upgrade; all of it stays as it was."""
    package.define("answer", ONE)
    await migrate(connection, [package.name])
    await connection.execute("CREATE VIEW report AS SELECT public.answer() AS n")
    package.define("answer", TEXT)
    package.define("later", ONE.replace("answer", "later"))

    with pytest.raises(BadMigration, match=r"answer: cannot be replaced .* view report"):
        await migrate(connection, [package.name])

    assert await connection.fetchval("SELECT n FROM report") == 1
    assert await connection.fetchval("SELECT to_regproc('public.later')") is None


async def test_a_step_may_use_the_functions_of_packages_before_it(
    connection: Connection, package: MigrationPackage
) -> None:
    """As domains call penstock.add_daily_table."""
    package.define("answer", ONE)
    later = MigrationPackage(package.steps.parents[1], f"later_{package.name}")
    later.write("0001_start.sql", "CREATE TABLE pear AS SELECT public.answer() AS id;")

    await migrate(connection, [package.name, later.name])

    assert await connection.fetchval("SELECT id FROM pear") == 1
