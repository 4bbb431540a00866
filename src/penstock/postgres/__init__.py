"""Everything about PostgreSQL that is not a queue: pool, listening, migrations, embedded server."""
