"""The versions of everything that the bench compares with, in one place."""

from typing import Final

PYTHON_PEERS: Final = (
    "pgqueuer[asyncpg]==1.6.0",
    "asyncpg==0.32.0",
    "procrastinate==3.10.0",
    "psycopg[binary]==3.3.8",
    "uvloop==0.23.0",
)

OBAN: Final = ("oban==0.7.0", "psycopg[binary]==3.3.8", "uvloop==0.23.0")
OBAN_PYTHON: Final = (3, 12)  # the least that PyPI's oban accepts

# Only POSTs, beside our deliveries of webhooks.
AIOHTTP: Final = ("aiohttp==3.14.5", "uvloop==0.23.0")
HTTPCORE: Final = ("httpcore[asyncio]==1.0.9", "uvloop==0.23.0")

# They send mails, beside ours.
AIOSMTPLIB: Final = ("aiosmtplib==5.1.3", "uvloop==0.23.0")
POST_OFFICE: Final = ("django-post_office==3.12.0", "Django==5.2.19", "psycopg[binary]==3.3.8")

# The `node` package brings its own Node: both peers ask for more than many machines have.
NODE_PEERS: Final = (
    "graphile-worker@0.18.0",
    "pg-boss@12.35.0",
    "pg@8.23.1",
    "node@22.23.3",
)
NODE: Final = (22, 18)  # the least that graphile-worker 0.18 accepts; pg-boss asks for 22.12

# Its server on PostgreSQL, and the tool that makes its tables.
TEMPORAL: Final = (
    "go.temporal.io/server/cmd/server@v1.32.1",
    "go.temporal.io/server/cmd/tools/sql@v1.32.1",
)
