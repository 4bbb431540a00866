"""`penstock listen`: receive webhooks on this machine, verify them and print them."""

from penstock.domains.webhooks.commands.listen.command import listen_command

__all__ = ["listen_command"]
