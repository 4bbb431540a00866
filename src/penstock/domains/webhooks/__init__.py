"""Webhooks: events out as signed deliveries that no crash can lose."""

from penstock.domains.webhooks.plug import build

__all__ = ["build"]
