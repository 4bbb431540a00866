"""What runs when the app opens: the handler of lanes, services, endpoints, the Python API."""

from collections.abc import Mapping
from datetime import timedelta
from functools import partial

from penstock.contract import AnyKind, Kind, Resources, Runtime, Service
from penstock.domains.payments.batcher import PaymentBatcher
from penstock.domains.payments.control import http as control
from penstock.domains.payments.dispatch_log import DispatchLog
from penstock.domains.payments.engine import (
    NO_ENGINES,
    Engines,
    HandlePayments,
    may_claim,
    takes_early,
)
from penstock.domains.payments.http import Api, endpoints
from penstock.domains.payments.kept_results import KeptResults
from penstock.domains.payments.lanes import LANE, OWNER
from penstock.domains.payments.loader import Engine, PaymentRef, load_payments
from penstock.domains.payments.notify import NotifyStep, send_nothing
from penstock.domains.payments.results import PaymentResults
from penstock.domains.payments.schedule import Payments
from penstock.domains.payments.steps import STEPS, Steps
from penstock.domains.payments.story import NO_READERS, DomainReaders
from penstock.domains.payments.stuck import StuckPayments
from penstock.postgres.statement import statement

LIST_ITEM_TYPE_LANES = statement(__package__, "list_item_type_lanes.sql")

# A batch of 500 takes a tenth of a second; a database that is slower for long is in trouble.
HANDLER_TIMEOUT = timedelta(seconds=60)


def build(
    resources: Resources,
    *,
    notify: NotifyStep = send_nothing,
    engines: Mapping[Engine, HandlePayments] = NO_ENGINES,
    steps: Steps = STEPS,
    readers: DomainReaders = NO_READERS,
) -> Runtime:
    """Build the domain; `steps` are those of phase A.

    `engines` execute payments, by the name in the row of their item type. `notify` sends the
    notifications of results that are applied late. `readers` read what other domains know of a
    payment.
    """
    payments = Payments(pool=resources.pool, steps=steps)
    run = Engines(by_name=engines).handle_many

    def kind_of(lane: str) -> AnyKind:
        return Kind(
            lane=lane,
            payload_type=PaymentRef,
            handle_many=run,
            preload=load_payments,
            may_claim=partial(may_claim, lane=lane),
            takes_early=takes_early,
            record=DispatchLog(lane=lane, meter=resources.meter).record,
            timeout=HANDLER_TIMEOUT,
        )

    async def find_kinds() -> list[AnyKind]:
        rows = await resources.pool.fetch(LIST_ITEM_TYPE_LANES, OWNER, LANE)
        return [kind_of(row[0]) for row in rows]

    results = PaymentResults(notify=notify, log=resources.log)
    kept = KeptResults(pool=resources.pool, results=results, log=resources.log)
    return Runtime(
        kinds=[kind_of(LANE)],
        find_kinds=find_kinds,
        services=[
            Service(name="payments.kept_results", run=kept.run),
            Service(name="payments.stuck", run=StuckPayments(pool=resources.pool).run),
        ],
        endpoints=[
            *endpoints(Api(batcher=PaymentBatcher(payments), readers=readers)),
            *control.endpoints(),
        ],
        apis=[payments],
    )
