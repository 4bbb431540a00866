"""Penstock in twenty lines: a lane, its handler, three items, and a worker that then stops."""

import asyncio

from penstock import Item, Penstock

NAMES = ("Ada", "Grace", "Edsger")
app = Penstock()  # Uses the database of `penstock up`, or starts one in .penstock.
everybody_greeted = asyncio.Event()
greeted: set[str] = set()


@app.handler("greetings", rate=100, max_attempts=5)
async def greet(item: Item[dict[str, str]]) -> None:
    print("hello,", item.payload["name"])
    greeted.add(item.payload["name"])
    if len(greeted) == len(NAMES):
        everybody_greeted.set()


async def main() -> None:
    async with app:
        for name in NAMES:
            await app.enqueue("greetings", {"name": name}, key=f"greet-{name}")
        await app.run_worker(stop=everybody_greeted)


if __name__ == "__main__":
    asyncio.run(main())
