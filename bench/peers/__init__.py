"""One adapter per peer. Each runs as its own process in the peer's own environment.

This package is imported there too, so it holds nothing but the standard library.
"""
