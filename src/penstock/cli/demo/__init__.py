"""`penstock demo`: payments from scheduling to the rail, with events and mails, all counted."""

from penstock.cli.demo.command import demo

__all__ = ["demo"]
