"""The command line: one verb, or one noun with its verbs, per module. Logic is elsewhere."""

from penstock.cli.root import main

__all__ = ["main"]
