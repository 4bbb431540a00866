"""Outbox: payment instructions to rails, in strict order for each participant, never twice."""
