"""Connect domains with integrations: one small module for each pair, and the list of domains."""
