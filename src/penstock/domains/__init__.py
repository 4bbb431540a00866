"""The dispatchers, one package each; none knows another."""
