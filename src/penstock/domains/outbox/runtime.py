"""What runs when the app opens: the handler of the lane, the endpoints, and the Python API."""

from datetime import timedelta
from uuid import UUID

import msgspec

from penstock.contract import Kind, Resources, Runtime, Service
from penstock.domains.outbox.accept import InstructionBatcher
from penstock.domains.outbox.enqueue import Outbox
from penstock.domains.outbox.http import control, instructions
from penstock.domains.outbox.lanes import LANE
from penstock.domains.outbox.recheck import Recheck
from penstock.domains.outbox.retain import ArchiveRetainer
from penstock.domains.outbox.seal import Sealer
from penstock.domains.outbox.settings import OutboxSettings
from penstock.kernel.item import Hold, Item, Snooze

# Until an adapter sends: an instruction waits without costing an attempt.
NO_RAIL = Snooze(after=timedelta(minutes=1), reason="no rail is connected")


class InstructionRef(msgspec.Struct, frozen=True, kw_only=True):
    """The payload of an item: which instruction it is."""

    outbox_id: UUID


def build(resources: Resources) -> Runtime:
    """Build the domain."""
    outbox = Outbox(pool=resources.pool)
    api = instructions.Api(batcher=InstructionBatcher(resources.pool))
    retainer = ArchiveRetainer(
        pool=resources.pool,
        log=resources.log,
        months_kept=resources.section(OutboxSettings).outbox_archive_months,
    )
    return Runtime(
        endpoints=[*instructions.endpoints(api), *control.ENDPOINTS],
        kinds=[
            Kind(
                lane=LANE,
                payload_type=InstructionRef,
                handle=_wait_for_a_rail,
                when_unknown=Hold,
            )
        ],
        services=[Service(name="recheck", run=Recheck(pool=resources.pool).run)],
        services=[
            Service(name="outbox.seal", run=Sealer(resources.pool).run),
            Service(name="outbox.retain", run=retainer.run),
        ],
        apis=[outbox],
    )


async def _wait_for_a_rail(_item: Item[InstructionRef]) -> Snooze:
    return NO_RAIL
