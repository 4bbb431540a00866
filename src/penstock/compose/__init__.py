"""Where domains meet integrations: one small module for each of both, and the list of domains."""
