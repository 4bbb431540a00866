"""`python -m penstock.cli` does as `penstock`."""

from penstock.cli import main

main()
