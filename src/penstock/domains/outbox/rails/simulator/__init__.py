"""The simulator: a payment rail on loopback with a ledger of its own, which fails on demand."""
