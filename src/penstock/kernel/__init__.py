"""The durable queue: enqueue → claim → execute → settle, and what repairs it. Knows no domain."""
