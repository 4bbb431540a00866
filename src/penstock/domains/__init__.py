"""The dispatchers, one package each; none imports another."""
