"""The outside world, each part optional: plain types in and out, and no word of any domain."""
