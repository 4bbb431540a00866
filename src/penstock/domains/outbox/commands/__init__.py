"""The command group `outbox`."""

from penstock.domains.outbox.commands.group import outbox

__all__ = ["outbox"]
