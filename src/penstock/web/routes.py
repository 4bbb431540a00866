"""Find the endpoint of a request. Paths without parameters are found in a dictionary."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from starlette.exceptions import HTTPException

from penstock.contract.http import Endpoint

ByMethod = dict[str, Endpoint]

_PARAMETER = re.compile(r"\\{(\w+)\\}")  # As re.escape leaves it.


@dataclass(slots=True)
class Routes:
    """The table of endpoints, by path."""

    fixed: dict[str, ByMethod] = field(default_factory=dict[str, ByMethod])
    open: list[tuple[re.Pattern[str], ByMethod]] = field(
        default_factory=list[tuple[re.Pattern[str], ByMethod]]
    )

    def find(self, path: str, method: str) -> tuple[Endpoint, Mapping[str, str]]:
        """Return the endpoint and the path's parameters; raises HTTPException 404 or 405."""
        method = "GET" if method == "HEAD" else method
        by_method = self.fixed.get(path, {})
        if method in by_method:
            return by_method[method], {}
        allowed = set(by_method)
        for pattern, by_method in self.open:
            found = pattern.fullmatch(path)
            if found and method in by_method:
                return by_method[method], found.groupdict()
            if found:
                allowed |= by_method.keys()
        if not allowed:
            raise HTTPException(404)
        if "GET" in allowed:
            allowed.add("HEAD")
        raise HTTPException(405, headers={"Allow": ", ".join(sorted(allowed))})


def read_routes(table: Iterable[Endpoint]) -> Routes:
    """Return the routes of a table, which has each method of a path once."""
    by_path: dict[str, ByMethod] = {}
    for each in table:
        by_method = by_path.setdefault(each.path, {})
        assert each.method not in by_method, f"{each.method} {each.path} is in the table twice"
        by_method[each.method] = each
    routes = Routes()
    for path, by_method in by_path.items():
        if "{" in path:
            has_more = any(other.startswith(path + "/") for other in by_path)
            routes.open.append((_pattern(path, has_more=has_more), by_method))
        else:
            routes.fixed[path] = by_method
    return routes


def _pattern(path: str, *, has_more: bool) -> re.Pattern[str]:
    """Return a path's pattern.

    A name may contain slashes: they are sent as %2F, but arrive decoded. So the last parameter
    takes the rest of the path, unless a longer path of the table begins like this one.
    """
    pattern = _PARAMETER.sub(r"(?P<\1>[^/]+)", re.escape(path))
    if pattern.endswith("[^/]+)") and not has_more:
        pattern = pattern.removesuffix("[^/]+)") + ".+)"
    return re.compile(pattern, re.DOTALL)
