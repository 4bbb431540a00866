"""Send payment instructions in your own transaction, and see the simulated rail pay them."""

import asyncio

from penstock import Penstock
from penstock.domains.outbox.enqueue import AcceptedInstruction, NewInstruction, Outbox
from penstock.domains.outbox.inspect import read_story
from penstock.domains.outbox.rails.registry import list_rails
from penstock.postgres.pool import Connection

app = Penstock()


async def main() -> None:
    """Roll one payment back, send three, and send one of them again."""
    stop = asyncio.Event()
    async with app, asyncio.TaskGroup() as group, app.pool.acquire() as db:
        group.create_task(app.run_worker(stop))
        while not await list_rails(db):  # noqa: ASYNC110  The simulator starts with the worker.
            await asyncio.sleep(0.05)

        rolled_back = db.transaction()
        await rolled_back.start()
        await pay(db, "rent-march")
        await rolled_back.rollback()
        print("rent-march was rolled back, and took no number")

        async with db.transaction():
            sent = {name: await pay(db, name) for name in ("rent-april", "salary-1", "salary-2")}
        for name, accepted in sent.items():
            reference = await wait_until_paid(db, accepted)
            print(f"{name} is number {accepted.sequence_id} of acme, and paid: {bool(reference)}")

        again = await pay(db, "rent-april")
        is_same = again.outbox_id == sent["rent-april"].outbox_id
        print(f"rent-april again is the same instruction: {is_same}")
        stop.set()


async def pay(db: Connection, name: str) -> AcceptedInstruction:
    """Instruct a payment in the transaction of `db`."""
    instruction = NewInstruction(
        instruction_id=name,
        participant_id="acme",
        idempotency_key="1",
        rail_type="simulator",
        payload={
            "amount": "12.50",
            "currency": "EUR",
            "destination": {"iban": "DE89370400440532013000"},
        },
    )
    return await app.api(Outbox).send(instruction, connection=db)


async def wait_until_paid(db: Connection, accepted: AcceptedInstruction) -> str | None:
    """Return the reference of the rail once it has the instruction."""
    while True:
        story = await read_story(db, accepted.outbox_id)
        if story.instruction.state in {"DISPATCHED", "SETTLED"}:
            return story.instruction.rail_reference
        await asyncio.sleep(0.05)


if __name__ == "__main__":
    asyncio.run(main())
