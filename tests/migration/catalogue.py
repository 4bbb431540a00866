"""The schema of a database as sorted lines of text, to be stored and compared."""

import re
from typing import LiteralString

from penstock.postgres.pool import Connection

# Each query returns one line per object. Partitions of single days are left out: their names and
# bounds follow from the date on which a database was made.
_QUERIES: tuple[LiteralString, ...] = (
    # Tables, sequences and views with their storage options.
    r"""
    SELECT format('relation %s kind=%s partition_key=%s bound=%s options=%s', c.relname, c.relkind,
        pg_get_partkeydef(c.oid), pg_get_expr(c.relpartbound, c.oid), c.reloptions)
    FROM pg_class AS c
    WHERE c.relnamespace = 'penstock'::regnamespace AND c.relkind IN ('r', 'p', 'S', 'v', 'm')
        AND c.relname !~ '_\d{8}$'
    """,
    r"""
    SELECT format('column %s.%s number=%s type=%s collation=%s not_null=%s default=%s identity=%s',
        c.relname, a.attname, row_number() OVER (PARTITION BY c.oid ORDER BY a.attnum),
        format_type(a.atttypid, a.atttypmod), k.collname, a.attnotnull,
        pg_get_expr(d.adbin, d.adrelid), a.attidentity)
    FROM pg_class AS c
    JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    LEFT JOIN pg_attrdef AS d ON d.adrelid = c.oid AND d.adnum = a.attnum
    LEFT JOIN pg_collation AS k ON k.oid = a.attcollation
    WHERE c.relnamespace = 'penstock'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm')
        AND c.relname !~ '_\d{8}$'
    """,
    r"""
    SELECT format('constraint %s.%s %s', c.relname, k.conname, pg_get_constraintdef(k.oid))
    FROM pg_constraint AS k JOIN pg_class AS c ON c.oid = k.conrelid
    WHERE c.relnamespace = 'penstock'::regnamespace AND c.relname !~ '_\d{8}$'
    """,
    r"""
    SELECT format('index %s', indexdef) FROM pg_indexes
    WHERE schemaname = 'penstock' AND tablename !~ '_\d{8}$'
    """,
    """
    SELECT format('sequence %s type=%s start=%s step=%s min=%s max=%s cycle=%s', sequencename,
        data_type, start_value, increment_by, min_value, max_value, cycle)
    FROM pg_sequences
    WHERE schemaname = 'penstock'
    """,
    """
    SELECT format('view %s %s', c.relname, pg_get_viewdef(c.oid))
    FROM pg_class AS c
    WHERE c.relnamespace = 'penstock'::regnamespace AND c.relkind IN ('v', 'm')
    """,
    """
    SELECT format('trigger %s', pg_get_triggerdef(t.oid))
    FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid
    WHERE c.relnamespace = 'penstock'::regnamespace AND NOT t.tgisinternal
    """,
    """
    SELECT format('function %s(%s) %s', p.proname, pg_get_function_identity_arguments(p.oid),
        pg_get_functiondef(p.oid))
    FROM pg_proc AS p
    WHERE p.pronamespace = 'penstock'::regnamespace
    """,
)


async def read_catalogue(connection: Connection) -> list[str]:
    """Return one line per object of the schema `penstock`, without comments and layout."""
    async with connection.transaction():
        # PostgreSQL names a table without its schema when that is on the path.
        await connection.execute("SET LOCAL search_path = public")
        lines = [row[0] for query in _QUERIES for row in await connection.fetch(query)]
    return sorted(_normalised(line) for line in lines)


def _normalised(line: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"--[^\n]*", "", line)).strip()
