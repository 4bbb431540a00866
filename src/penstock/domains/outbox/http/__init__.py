"""The endpoints of the outbox, one module for each part of it."""
