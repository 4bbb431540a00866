"""Clients of external systems, each optional: plain types in and out, no knowledge of domains."""
