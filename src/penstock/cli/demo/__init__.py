"""`penstock demo`: a burst against a rate limit, watched live, and the proof at the end."""

from penstock.cli.demo.command import demo

__all__ = ["demo"]
