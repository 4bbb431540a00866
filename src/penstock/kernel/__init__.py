"""The durable queue: enqueue → claim → execute → settle, and its repair. Imports no domain."""
