"""`penstock listen`: receive webhooks on this machine, verify them and print them."""

from penstock.cli.listen.command import listen

__all__ = ["listen"]
