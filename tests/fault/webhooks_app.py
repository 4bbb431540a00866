"""The app of the workers in the crash test of webhooks: what every app has, and nothing else."""

from penstock import Penstock

app = Penstock()
