"""The reference is complete: what the code has, the pages list, and nothing else."""

import ast
from collections.abc import Iterator

import click

from penstock.api.metrics import METRICS
from penstock.api.problem import status_of
from penstock.base.errors import PenstockError
from penstock.base.settings import PREFIX, Settings
from penstock.cli.exits import exit_code
from penstock.cli.lane import policy
from penstock.cli.output import text
from penstock.cli.root import penstock
from penstock.kernel.lane import POLICY_FIELDS, create_lane
from penstock.postgres.pool import Pool
from tests.api.scene import all_endpoints
from tests.docs.pages import ROOT, anchors_of, cells_of, read, rows_of

SOURCE = ROOT / "src" / "penstock"
LEVELS = {"debug", "info", "warning", "error"}
EVERYWHERE = {"--json", "--data-dir", "--help"}


def test_every_setting_has_an_entry() -> None:
    """A variable that is not written down is set by nobody."""
    listed = rows_of(read("docs/reference/settings.md"))

    variables = {
        str(field.validation_alias or PREFIX + name.upper())
        for name, field in Settings.model_fields.items()
    }
    assert listed == variables


def test_every_error_has_an_entry_with_its_status_and_exit_code() -> None:
    """Programs act on codes; they must be able to look them up."""
    page = "docs/reference/errors.md"
    listed = {code: cells for code, cells in cells_of(read(page)).items() if len(cells) == 3}

    errors = {error.code: error for error in (PenstockError, *descendants(PenstockError))}
    assert listed == {
        code: [f"`{error.__name__}`", str(status_of(error)), str(int(exit_code(bare(error))))]
        for code, error in errors.items()
    }
    assert errors.keys() <= anchors_of(ROOT / page)


def test_every_log_event_has_an_entry_with_its_levels() -> None:
    """Who is woken by a line wants to know what it means."""
    table, _, _ = read("docs/reference/log-events.md").partition("## Keys")
    listed = {event: set(levels.split(", ")) for event, (levels, *_) in cells_of(table).items()}

    logged: dict[str, set[str]] = {}
    for event, level in events():
        logged.setdefault(event, set()).add(level)
    assert listed == logged


def test_every_metric_has_an_entry_with_its_type() -> None:
    listed = cells_of(read("docs/reference/metrics.md"))

    assert {name: cells[0] for name, cells in listed.items()} == {
        name: kind for name, (kind, _) in METRICS.items()
    }


def test_every_verb_has_a_section_with_its_options() -> None:
    sections = {
        title.strip(): body
        for title, _, body in (
            section.partition("\n") for section in read("docs/reference/cli.md").split("\n### ")[1:]
        )
    }

    verbs = dict(verbs_of(penstock, "penstock"))
    assert sections.keys() == verbs.keys()
    for name, verb in verbs.items():
        options = {
            option
            for parameter in verb.params
            for option in parameter.opts
            if option.startswith("--")
        }
        missing = {option for option in options - EVERYWHERE if f"`{option}" not in sections[name]}
        assert not missing, name


def test_every_endpoint_has_an_entry_with_its_scope() -> None:
    lines = (line.strip("| ").split(" | ") for line in read("docs/reference/rest.md").splitlines())
    listed = {
        (cells[0], cells[1].strip("`"), cells[2])
        for cells in lines
        if cells[0] in {"GET", "POST", "PUT", "PATCH", "DELETE"}
    }

    assert listed == {(each.method, each.path, each.scope or "none") for each in all_endpoints()}


async def test_every_field_of_a_policy_has_an_entry_with_its_default(db: Pool) -> None:
    async with db.acquire() as connection:
        lane = await create_lane(connection, "plain", who="test")

    listed = cells_of(read("docs/reference/lane-policy.md"))

    defaults = {name: text(value) for name, value in policy(lane).items() if name in POLICY_FIELDS}
    assert {name: cells[0] for name, cells in listed.items()} == defaults


async def test_every_table_has_an_entry_with_its_columns(db: Pool) -> None:
    tables, _, _ = read("docs/reference/tables.md").partition("## States")
    listed = {name: set(cells[0].split(", ")) for name, cells in cells_of(tables).items()}

    rows = await db.fetch(
        """
        SELECT c.relname, array_agg(a.attname::text) AS columns
        FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid
        WHERE c.relnamespace = 'penstock'::regnamespace AND c.relkind IN ('r', 'p')
            AND NOT c.relispartition AND a.attnum > 0 AND NOT a.attisdropped
        GROUP BY c.relname
        """
    )
    stored = {row["relname"]: {f"`{column}`" for column in row["columns"]} for row in rows}
    summed_up = {f"`{field}`" for field in POLICY_FIELDS}
    stored["lane"] = stored["lane"] - summed_up | {"the [policy](lane-policy.md)"}
    assert listed == stored


async def test_every_function_has_an_entry(db: Pool) -> None:
    page = read("docs/reference/sql.md")

    rows = await db.fetch(
        "SELECT proname FROM pg_proc WHERE pronamespace = 'penstock'::regnamespace"
    )
    for name in (f"penstock.{row['proname']}" for row in rows):
        assert f"### {name}\n" in page or f"| `{name}` |" in page, name


def descendants(error: type[PenstockError]) -> Iterator[type[PenstockError]]:
    for child in error.__subclasses__():
        yield child
        yield from descendants(child)


def bare(error: type[PenstockError]) -> PenstockError:
    """Return an instance without its data; only its class matters for the code."""
    return error.__new__(error)


def events() -> Iterator[tuple[str, str]]:
    """Yield the event and the level of every call of a logger with a literal in the source."""
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(
                    func=ast.Attribute(value=logger, attr=level),
                    args=[ast.Constant(value=str(event)), *_],
                ) if level in LEVELS and ast.unparse(logger).rsplit(".", 1)[-1] in ("log", "_log"):
                    yield event, level
                case _:
                    pass


def verbs_of(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            yield from verbs_of(child, f"{path} {name}")
    else:
        yield path, command
