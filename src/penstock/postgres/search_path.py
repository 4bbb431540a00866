"""Put the schema `penstock` on a database's search path, so that its views are found by name."""

from penstock.postgres.pool import Connection
from penstock.postgres.statement import composed_by_server, statement

SEARCH_PATH_STATEMENT = statement(__package__, "search_path_statement.sql")


async def extend_search_path(connection: Connection) -> bool:
    """Append the schema for connections from now on; say whether it was missing.

    Only the owner of the database may do this. Your own tables are found first.
    """
    composed: str | None = await connection.fetchval(SEARCH_PATH_STATEMENT)
    if composed is not None:
        await connection.execute(composed_by_server(composed))
    return composed is not None
