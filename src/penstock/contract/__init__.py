"""What a domain hands to the app, and what it gets from it. The only door between the two."""

from penstock.contract.domain import AnyKind, Build, Domain, Kind, Resources

__all__ = ["AnyKind", "Build", "Domain", "Kind", "Resources"]
