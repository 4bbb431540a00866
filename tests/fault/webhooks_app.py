"""The app of the workers in the crash test of webhooks: the built-in domains only."""

from penstock import Penstock

app = Penstock()
