"""What payments declare to the app; what runs is in runtime.py."""

from penstock.contract import Domain, Hint, OwnedLane
from penstock.domains.payments.control.type_rules import check_calendars
from penstock.domains.payments.errors import (
    InvalidCalendar,
    PaymentClaimed,
    PaymentConflict,
    PaymentRefused,
    UnknownItemType,
    UnknownPayment,
    UnknownPaymentLimit,
    UnknownPaymentRule,
)
from penstock.domains.payments.lanes import GUARDS, LANE, OWNER, POLICY
from penstock.domains.payments.metrics import METRICS
from penstock.domains.payments.settings import PaymentSettings

# Without what executes payments: `compose.payments` adds the factory and the commands.
PAYMENTS = Domain(
    name=OWNER,
    migration_packages=("penstock.domains.payments",),
    lanes=(OwnedLane(name=LANE, policy=POLICY, guards=GUARDS),),
    settings=(PaymentSettings,),
    errors=(
        InvalidCalendar,
        PaymentClaimed,
        PaymentConflict,
        PaymentRefused,
        UnknownItemType,
        UnknownPayment,
        UnknownPaymentLimit,
        UnknownPaymentRule,
    ),
    metrics=METRICS,
    checks=(check_calendars,),
    hint=Hint(
        what="a payment, which becomes such an instruction when it is due",
        path="/payments",
        body='{"payment_id": "pay-2", "item_type": "PAYMENT", "amount": "12.50", '
        '"currency": "EUR", "debtor": {"name": "Shop", "iban": "DE89370400440532013000"}, '
        '"creditor": {"name": "Ada", "iban": "FR1420041010050500013M02606"}, '
        '"participant_id": "shop", "rail_type": "simulator"}',
    ),
)
