"""An app whose handler says when it has started, and ends when the test opens its gate.

The gate is a named pipe in the current folder: reading waits until somebody writes.
"""

import asyncio
import os
from datetime import timedelta
from pathlib import Path

from penstock import Item, Penstock

app = Penstock()


@app.handler("gated", concurrency=1)
async def wait_at_the_gate(item: Item[int]) -> None:
    """Say who runs what, before and after."""
    print(f"started {item.payload} in {os.getpid()}", flush=True)
    await asyncio.to_thread(Path(f"gate-{item.payload}").read_bytes)
    print(f"ended {item.payload}", flush=True)


@app.handler("open")
async def say(item: Item[int]) -> None:
    """End at once."""
    print(f"handled {item.payload}", flush=True)


@app.handler("later", jitter_window=timedelta(hours=1))
async def wait_for_a_turn(item: Item[int]) -> None:
    """Practically never run: the items are claimed, and wait for their turn."""
    print(f"handled {item.payload}", flush=True)
