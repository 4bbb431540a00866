"""The command group `mail`. Commands import the extra `mail` when they run, not at start."""

from penstock.domains.mail.commands.group import mail

__all__ = ["mail"]
