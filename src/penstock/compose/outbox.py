"""The outbox with what carries it. The rails and the events of webhooks meet it here."""

from dataclasses import replace

from penstock.contract import Domain
from penstock.domains.outbox.commands import outbox
from penstock.domains.outbox.domain import OUTBOX
from penstock.domains.outbox.runtime import build

DOMAIN: Domain = replace(OUTBOX, build=build, commands=(outbox,))
