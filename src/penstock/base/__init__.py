"""The lowest layer, used by all others: errors, settings, clock, log, tasks."""
