"""Migrations as files: `migrations/NNNN_name.sql` of a package, in two halves.

A `pre` step adds what a release needs and leaves the previous release working. A `post` step,
`NNNN_post_name.sql`, removes what only the previous release needed. Reading, no database.
"""

import re
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import LiteralString

from penstock.postgres.errors import BadMigration
from penstock.postgres.statement import read_sql

_NAME = re.compile(r"(?P<number>\d{4})_\w+\.sql")
_POST = re.compile(r"\d{4}_post_")
_REPLACES = re.compile(r"^-- replaces: (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One file of one migration package."""

    package: str
    number: int
    name: str
    script: LiteralString

    @property
    def checksum(self) -> str:
        """Return the hash by which an edited file is noticed."""
        return sha256(self.script.encode()).hexdigest()

    @property
    def is_post(self) -> bool:
        """Say whether the previous release cannot work once this is applied."""
        return is_post(self.name)

    @property
    def replaces(self) -> list[str]:
        """Return the earlier steps whose result this file is: `-- replaces: 0001_a, 0002_b`."""
        return [name for line in _REPLACES.findall(self.script) for name in line.split(", ")]


def is_post(name: str) -> bool:
    """Say whether a step of this name, perhaps of a release that we do not know, is a post step."""
    return _POST.match(name) is not None


@cache  # As the functions of the package.
def read_steps(package: str) -> tuple[Step, ...]:
    """Return the steps that a migration package ships, in order."""
    names = sorted(entry.name for entry in (files(package) / "migrations").iterdir())
    steps = tuple(_read(package, name) for name in names if name.endswith(".sql"))
    for expected, step in enumerate(steps, start=1):
        if step.number != expected:
            raise BadMigration(package, step.name, f"number {expected:04} was expected here")
    return steps


def _read(package: str, name: str) -> Step:
    match = _NAME.fullmatch(name)
    if match is None:
        raise BadMigration(package, name, "the name must look like 0001_what_it_does.sql")
    return Step(
        package=package,
        number=int(match["number"]),
        name=name.removesuffix(".sql"),
        script=read_sql(package, "migrations", name),
    )
