"""PostgreSQL apart from the queue: connection pool, LISTEN, migrations, embedded server."""
