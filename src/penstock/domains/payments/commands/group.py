"""The command group `payment`."""

import click

from penstock.domains.payments.commands.composed import Composed
from penstock.domains.payments.commands.inspect import list_, show
from penstock.domains.payments.commands.operate import cancel, reschedule
from penstock.domains.payments.commands.rules import limit, rule
from penstock.domains.payments.commands.schedule import schedule

VERBS = (schedule, show, list_, cancel, reschedule, limit, rule)


def payment_group(composed: Composed) -> click.Group:
    """Return the group; its verbs find `composed` as the context's object."""

    @click.group(name="payment")
    @click.pass_context
    def payment(context: click.Context) -> None:
        """Schedule payments, show what became of them, cancel and reschedule them, set rules.

        JSON output has the field names of the REST API.
        """
        context.obj = composed

    for verb in VERBS:
        payment.add_command(verb)
    return payment
