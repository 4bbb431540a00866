"""An app with one lane and nothing to do, for `penstock up` while its idleness is measured."""

from penstock import Item, Penstock

app = Penstock()


@app.handler("resting")
async def rest(_item: Item[object]) -> None:
    """Do nothing, if it ever comes to that."""
