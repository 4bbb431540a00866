"""An app whose handler prints its start, and ends when the test opens its gate.

The gate is a named pipe in the current folder: reading waits until the test writes.
"""

import asyncio
import os
from datetime import timedelta
from pathlib import Path

from penstock import Item, Penstock

app = Penstock()


@app.handler("gated", concurrency=1)
async def wait_at_the_gate(item: Item[int]) -> None:
    """Print the item and the process before the gate, and the item after it."""
    print(f"started {item.payload} in {os.getpid()}", flush=True)
    await asyncio.to_thread(Path(f"gate-{item.payload}").read_bytes)
    print(f"ended {item.payload}", flush=True)


@app.handler("open")
async def print_item(item: Item[int]) -> None:
    """End immediately."""
    print(f"handled {item.payload}", flush=True)


@app.handler("later", jitter_window=timedelta(hours=1))
async def wait_for_the_start(item: Item[int]) -> None:
    """Practically never run: claimed items wait for a start within an hour."""
    print(f"handled {item.payload}", flush=True)
