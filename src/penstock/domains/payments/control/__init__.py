"""The rules of phase A as operators change them: limits, duplicates and calendars."""
