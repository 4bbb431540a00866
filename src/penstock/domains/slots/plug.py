"""What slots hand to the app: no lanes of their own, but endpoints and tables."""

from penstock.contract import Domain, Resources
from penstock.domains.slots.http import endpoints

OWNER = "penstock.domains.slots"


def build(resources: Resources) -> Domain:
    """Return the domain."""
    return Domain(name="slots", owners=(OWNER,), endpoints=endpoints(resources.pool))
