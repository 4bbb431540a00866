"""The domain of slots: endpoints, tables and commands, no lanes."""

from penstock.contract import Domain, Hint, Resources, Runtime
from penstock.domains.slots.commands import slots
from penstock.domains.slots.errors import PoolExhausted, SlotConflict, UnknownPool, UnknownSlot
from penstock.domains.slots.http import endpoints


def build(resources: Resources) -> Runtime:
    """Build the endpoints on the app's pool."""
    return Runtime(endpoints=endpoints(resources.pool))


SLOTS = Domain(
    name="slots",
    build=build,
    migration_packages=("penstock.domains.slots",),
    errors=(PoolExhausted, SlotConflict, UnknownPool, UnknownSlot),
    commands=(slots,),
    hint=Hint(
        what="a slot for an event",
        path="/api/v1/slots",
        body="""{"eventId": "pay-1", "requestedTime": "'$(date -u +%FT%TZ)'"}""",
    ),
)
