"""Send events as signed webhooks; the receiver verifies them, and a failed one is retried."""

import os

# By default webhooks go only to public addresses; the receiver of this example is on loopback.
os.environ.setdefault("PENSTOCK_EGRESS_ALLOW", "127.0.0.0/8")

import asyncio
import json
from asyncio import StreamReader, StreamWriter
from datetime import UTC, datetime, timedelta

from penstock import Penstock
from penstock.base.vault import make_key
from penstock.compose.webhooks import open_subscriptions
from penstock.domains.webhooks.accept import accept_events
from penstock.domains.webhooks.event import NewEvent
from penstock.domains.webhooks.inspect import list_attempts, read_event
from penstock.domains.webhooks.secret import make_secret, read_secret
from penstock.domains.webhooks.sign import verify
from penstock.domains.webhooks.subscription import NewSubscription
from penstock.postgres.pool import Connection

if "PENSTOCK_DATABASE_URL" in os.environ:
    # The data folder of the embedded database has a key for secrets; other databases need one.
    os.environ.setdefault("PENSTOCK_SECRET_KEY", make_key())

COUNT = 3
SECRET = make_secret()  # The sender signs with it, and the receiver verifies with it.

app = Penstock()
taken: set[int] = set()
failed: set[int] = set()
all_taken = asyncio.Event()


async def main() -> None:
    """Subscribe, send events, deliver them, and print the attempts of the one that failed."""
    server = await asyncio.start_server(receive, "127.0.0.1", 0)
    port: int = server.sockets[0].getsockname()[1]
    async with server, app, app.pool.acquire() as db:
        subscriptions = open_subscriptions()
        new = NewSubscription(
            url=f"http://127.0.0.1:{port}/hook",
            event_types=["order.*"],
            secret=SECRET,
            retry_schedule=[timedelta(milliseconds=200), timedelta(minutes=1)],
        )
        subscription, _ = await subscriptions.create(db, new, who="example")

        event_ids = await send_orders(db)
        await app.run_worker(all_taken)

        event = await read_event(db, "default", event_ids[1])
        print(f"order 2 is {event.status} after {event.attempts} attempts:")
        for attempt in await list_attempts(db, event):
            print(f"  attempt {attempt.attempt} was answered {attempt.status_code}")
        await subscriptions.change(db, subscription.id, {"state": "deleted"}, who="example")


async def send_orders(db: Connection) -> list[str]:
    """Accept events with all their deliveries, in the transaction of the caller."""
    events = [
        NewEvent(type="order.paid", data=json.dumps({"order": number}))
        for number in range(1, COUNT + 1)
    ]
    async with db.transaction():
        accepted = await accept_events(db, events)
    print(f"sent {len(accepted)} events")
    return [each.event_id for each in accepted]


# --------------------------------------------------------------------------------- the receiver


async def receive(reader: StreamReader, writer: StreamWriter) -> None:
    """Handle one request; a web framework replaces all but two of these lines."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().strip()
    headers = dict(line.split(": ", 1) for line in head.split("\r\n")[1:])
    body = await reader.readexactly(int(headers["Content-Length"]))
    status = take(json.loads(body)["data"]["order"]) if is_signed(headers, body) else 401
    answer = f"HTTP/1.1 {status} -\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    writer.write(answer.encode())
    writer.close()
    if len(taken) == COUNT:
        all_taken.set()


def is_signed(headers: dict[str, str], body: bytes) -> bool:
    """Return whether the sender signed these bytes within the last few minutes."""
    secrets = [read_secret(SECRET, "standard")]
    refused = verify(headers, body, profile="standard", secrets=secrets, now=datetime.now(UTC))
    return refused is None


def take(order: int) -> int:
    """Do the work; the first attempt of order 2 fails."""
    if order == 2 and order not in failed:
        failed.add(order)
        print(f"receiver: order {order} is genuine, but something goes wrong")
        return 500
    taken.add(order)
    print(f"receiver: order {order} is genuine")
    return 200


if __name__ == "__main__":
    asyncio.run(main())
