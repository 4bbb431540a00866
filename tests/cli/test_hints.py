"""The commands that `penstock up` prints for a new user."""

from penstock.cli.hints import commands
from penstock.contract import Domain, Hint


def test_a_domain_of_another_package_has_its_own_hint() -> None:
    """Nothing of Penstock changes for it; a domain without a hint is left out."""
    parcels = Domain(
        name="parcels",
        hint=Hint(what="a parcel", path="/parcels", body='{"id": "p-1"}'),
    )

    printed = commands("http://here", [Domain(name="quiet"), parcels])

    curl = """curl -s http://here/parcels -H "Authorization: Bearer $KEY" --json '{"id": "p-1"}'"""
    assert printed == [("a parcel", curl)]
