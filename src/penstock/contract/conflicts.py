"""Refuse names that are declared twice, by two domains or by a domain and the kernel.

Otherwise the later declaration would replace the earlier one silently. One object may be declared
by several domains: a section or a metric of an integration that they share. A guard that nothing
checks is refused too.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from penstock.base.settings import variables_of
from penstock.contract.domain import Domain, OwnedLane, Runtime
from penstock.contract.errors import BadDomain
from penstock.contract.http import Endpoint
from penstock.kernel.guard import GUARDABLE

_PARAMETER = re.compile(r"{\w+}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Declared:
    """A named part of a domain. `key` is what must differ, `what` describes it in a message."""

    domain: str
    what: str
    key: str
    part: object | None = None  # What several domains may declare together, if anything.


def check_domains(domains: Iterable[Domain]) -> None:
    """Raise BadDomain if a name is declared twice or a guard is unknown; needs no database."""
    domains = list(domains)
    for domain in domains:
        for lane in domain.lanes:
            _check_guards(domain, lane)
    _check_unique(declared for domain in domains for declared in _declarations(domain))


def check_runtimes(built: Iterable[tuple[Domain, Runtime]]) -> None:
    """Raise BadDomain if two domains run one lane or endpoint, or a declared lane has no kind."""
    built = list(built)
    for domain, runtime in built:
        _check_lanes(domain, runtime)
    _check_unique(
        _named(domain, "a handler of the lane", kind.lane)
        for domain, runtime in built
        for kind in runtime.kinds
    )
    check_endpoints((domain.name, each) for domain, runtime in built for each in runtime.endpoints)


def check_endpoints(endpoints: Iterable[tuple[str, Endpoint]]) -> None:
    """Raise BadDomain if two endpoints, given with the names of their domains, are the same.

    Parameters of a path match alike, whatever they are called.
    """
    _check_unique(
        _Declared(
            domain=domain,
            what=f"the endpoint {each.method} {each.path}",
            key=f"{each.method} {_PARAMETER.sub('{}', each.path)}",
        )
        for domain, each in endpoints
    )


def _declarations(domain: Domain) -> Iterator[_Declared]:
    yield _named(domain, "the name", domain.name)
    for lane in domain.lanes:
        yield _named(domain, "the lane", lane.name)
    for section in domain.settings:
        for name in section.model_fields:
            for variable in variables_of(section, name):
                yield _named(domain, "the variable", variable, part=section)
    for metric in domain.metrics:
        yield _named(domain, "the metric", metric.name, part=metric)
    for error in domain.errors:
        yield _named(domain, "the error code", error.code, part=error)
    for command in domain.commands:
        assert command.name is not None, "a command has a name"
        yield _named(domain, "the command", command.name, part=command)


def _named(domain: Domain, what: str, name: str, *, part: object | None = None) -> _Declared:
    return _Declared(domain=domain.name, what=f"{what} {name!r}", key=f"{what} {name}", part=part)


def _check_unique(declarations: Iterable[_Declared]) -> None:
    known: dict[str, _Declared] = {}
    for each in declarations:
        first = known.setdefault(each.key, each)
        is_shared = each.part is not None and each.part is first.part
        if first is not each and not is_shared:
            also = " twice" if first.domain == each.domain else f", and so does {first.domain!r}"
            raise BadDomain(each.domain, f"declares {each.what}{also}")


def _check_lanes(domain: Domain, runtime: Runtime) -> None:
    handled = {kind.lane for kind in runtime.kinds}
    for lane in domain.lanes:
        if lane.name not in handled:
            raise BadDomain(domain.name, f"declares the lane {lane.name!r}, and no kind of it")


def _check_guards(domain: Domain, lane: OwnedLane) -> None:
    for key in (*lane.guards, *lane.allows):
        if key not in GUARDABLE:
            reason = f"guards or allows {key!r} in {lane.name!r}, which is not a verb or field"
            raise BadDomain(domain.name, reason)
    for key in lane.allows:
        if key in lane.guards:
            raise BadDomain(domain.name, f"guards and allows {key!r} in {lane.name!r}")
