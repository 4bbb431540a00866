"""Slots: a reserved instant for each caller's event, under a capacity per window of time."""
