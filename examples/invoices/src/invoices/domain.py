"""Invoices: sent at 50 per second, in order per customer."""

from invoices.commands import invoices
from invoices.errors import InvoiceConflict
from invoices.http import create
from invoices.invoice import LANE, OPEN, SENT, InvoiceRef, Invoices
from invoices.settings import InvoiceSettings, check_sender
from penstock.contract import Domain, Hint, Kind, OwnedLane, Resources, Runtime, Service, endpoint


def build(resources: Resources) -> Runtime:
    """Build the parts that run; called when a process opens, after the settings were validated."""
    chosen = resources.section(InvoiceSettings)
    work = Invoices(
        pool=resources.pool,
        log=resources.log,
        meter=resources.meter,
        sender=chosen.invoices_sender,
        keep=chosen.invoices_keep,
    )
    return Runtime(
        kinds=[Kind(lane=LANE, payload_type=InvoiceRef, handle=work.send)],
        endpoints=[
            endpoint(
                "POST", "/invoices", create, scope="produce", statuses=(201,),
                summary="Create an invoice, to be sent",
            ),
        ],
        services=[Service(name="invoices.retention", run=work.forget_forever)],
    )  # fmt: skip


INVOICES = Domain(
    name="invoices",
    build=build,
    migration_packages=["invoices"],  # It holds migrations/ and functions/.
    lanes=[
        OwnedLane(
            name=LANE,
            policy={"rate": 50, "ordering": "per_key"},
            guards={"enqueue": "use POST /invoices or invoices.create_invoice"},
        ),
    ],
    settings=[InvoiceSettings],
    errors=[InvoiceConflict],
    metrics=[SENT, OPEN],
    commands=[invoices],
    checks=[check_sender],
    hint=Hint(
        what="an invoice for a customer",
        path="/invoices",
        body='{"number": "2026-1", "customer": "ada", "amount_cents": 1250}',
    ),
)
