"""What a domain declares to the app, and what it gets from it; nothing else connects the two."""

from penstock.base.meter import Counter, Distribution, Gauge
from penstock.contract.check import Check, Finding
from penstock.contract.conflicts import check_domains
from penstock.contract.domain import (
    Domain,
    DomainFactory,
    FixedField,
    Hint,
    OwnedLane,
    Panel,
    Runtime,
    Service,
)
from penstock.contract.http import Call, Content, Endpoint, NoParameters, Reply, Stream, endpoint
from penstock.contract.resources import Resources
from penstock.kernel.kind import AnyKind, Kind

__all__ = [
    "AnyKind",
    "Call",
    "Check",
    "Content",
    "Counter",
    "Distribution",
    "Domain",
    "DomainFactory",
    "Endpoint",
    "Finding",
    "FixedField",
    "Gauge",
    "Hint",
    "Kind",
    "NoParameters",
    "OwnedLane",
    "Panel",
    "Reply",
    "Resources",
    "Runtime",
    "Service",
    "Stream",
    "check_domains",
    "endpoint",
]
