"""The command line: one verb, or one noun with its verbs, per module. It decides nothing itself."""

from penstock.cli.root import main

__all__ = ["main"]
