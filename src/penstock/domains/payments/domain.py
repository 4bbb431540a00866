"""What payments declare to the app; what runs is in runtime.py."""

from penstock.contract import Domain, OwnedLane
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
    metrics=METRICS,
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
    checks=(check_calendars,),
)
