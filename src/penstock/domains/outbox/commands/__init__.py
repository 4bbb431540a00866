"""The command group `outbox`."""

from penstock.domains.outbox.commands.group import outbox_group

__all__ = ["outbox_group"]
