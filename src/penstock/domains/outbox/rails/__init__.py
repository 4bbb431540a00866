"""Payment rails: what one is, the rows that set one up, the built-in adapters, the simulator."""
