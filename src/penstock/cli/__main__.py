"""`python -m penstock.cli` is the same as `penstock`."""

from penstock.cli import main

main()
