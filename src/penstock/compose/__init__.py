"""Connect each domain with integrations and other domains; the list of domains."""
