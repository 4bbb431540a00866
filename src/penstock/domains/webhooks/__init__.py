"""Webhooks: events out as signed deliveries that no crash can lose."""
