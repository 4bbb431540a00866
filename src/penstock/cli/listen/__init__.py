"""`penstock listen`: a receiver of webhooks on this machine, to look at what comes."""

from penstock.cli.listen.command import listen

__all__ = ["listen"]
