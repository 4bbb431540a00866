"""Which domains a process runs: the built-in ones, or those that PENSTOCK_DOMAINS names.

Other packages offer theirs as an entry point of the group `penstock.domains`.
"""

from collections.abc import Iterator, Sequence
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from types import ModuleType

from penstock.base import errors as base_errors
from penstock.base.errors import BadSetting, PenstockError
from penstock.base.settings import Settings, section, settings
from penstock.compose import mail, outbox, payments, webhooks
from penstock.compose.redis import RedisSettings
from penstock.contract import Domain
from penstock.contract import errors as contract_errors
from penstock.contract.errors import BadDomain
from penstock.domains.slots.domain import SLOTS
from penstock.integrations.redis import metrics as redis_metrics
from penstock.kernel import errors as kernel_errors
from penstock.kernel.lane import RESERVED_PREFIX, RESERVED_RULE
from penstock.kernel.metrics import METRICS
from penstock.postgres import errors as postgres_errors

# Mail needs packages of an extra, which not everybody installs.
BUILT_IN: tuple[Domain, ...] = (
    SLOTS,
    webhooks.DOMAIN,
    *((mail.DOMAIN,) if mail.is_installed() else ()),
    outbox.DOMAIN,
    payments.DOMAIN,
)

GROUP = "penstock.domains"
VARIABLE = "PENSTOCK_DOMAINS"


def _errors_of(*modules: ModuleType) -> Iterator[type[PenstockError]]:
    for module in modules:
        for each in vars(module).values():
            if isinstance(each, type) and issubclass(each, PenstockError):
                yield each


# What the layers below the domains declare, as a domain: no domain may take these names.
KERNEL = Domain(
    name="kernel",
    migration_packages=("penstock.kernel",),
    settings=(Settings, RedisSettings),
    errors=tuple(_errors_of(base_errors, postgres_errors, kernel_errors, contract_errors)),
    metrics=(*METRICS, *redis_metrics.METRICS),
)


def chosen_domains() -> Sequence[Domain]:
    """Return the domains of this process; raises BadSetting for a name that nothing offers."""
    names = settings().domains
    if names is None:
        return BUILT_IN
    built_in = {domain.name: domain for domain in BUILT_IN}
    offered = entry_points(group=GROUP)
    return [
        built_in[name] if name in built_in else _load(name, offered)
        for name in dict.fromkeys(names)
    ]


def check_lane_names(domains: Sequence[Domain]) -> None:
    """Raise BadDomain if a domain of another package declares a lane with a reserved name."""
    built_in = {domain.name for domain in BUILT_IN}
    for domain in domains:
        for lane in domain.lanes:
            if lane.name.startswith(RESERVED_PREFIX) and domain.name not in built_in:
                raise BadDomain(
                    domain.name, f"declares the lane {lane.name!r}, whose name {RESERVED_RULE}"
                )


def migration_packages(domains: Sequence[Domain]) -> list[str]:
    """Return the packages with migrations, the kernel's first, in the order they are applied."""
    packages = (each for domain in (KERNEL, *domains) for each in domain.migration_packages)
    return list(dict.fromkeys(packages))


def read_settings_of(domains: Sequence[Domain]) -> None:
    """Read every section of the domains, so that a wrong variable is refused at start."""
    for domain in domains:
        for kind in domain.settings:
            section(kind)


def _load(name: str, offered: EntryPoints) -> Domain:
    point = _find(name, offered)
    try:
        domain = point.load()
    except Exception as failure:
        # The import of another package's module may raise anything.
        reason = f"cannot be loaded: {type(failure).__name__}: {failure}"
        raise BadSetting(VARIABLE, f"{name!r} ({point.value}) {reason}") from failure
    if not isinstance(domain, Domain):
        raise BadSetting(VARIABLE, f"{name!r} ({point.value}) is not a Domain")
    if domain.name != name:
        raise BadSetting(VARIABLE, f"{name!r} ({point.value}) declares the name {domain.name!r}")
    return domain


def _find(name: str, offered: EntryPoints) -> EntryPoint:
    match list(offered.select(name=name)):
        case [point]:
            return point
        case []:
            known = ", ".join(sorted({domain.name for domain in BUILT_IN} | offered.names))
            raise BadSetting(VARIABLE, f"no installed package offers {name!r}; known: {known}")
        case points:
            values = ", ".join(sorted(point.value for point in points))
            raise BadSetting(VARIABLE, f"several packages offer {name!r}: {values}")
