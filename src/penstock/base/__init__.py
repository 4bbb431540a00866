"""What every layer may use and that knows no other layer: errors, settings, clock, log, tasks."""
