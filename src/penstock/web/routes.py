"""Find the endpoint of a request: one path is one route, and a path without parameters wins."""

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
        by_method, in_path = self._match(path)
        found = by_method.get("GET" if method == "HEAD" else method)
        if found is None:
            raise HTTPException(405, headers={"Allow": ", ".join(_allowed(by_method))})
        return found, in_path

    def _match(self, path: str) -> tuple[ByMethod, Mapping[str, str]]:
        fixed = self.fixed.get(path)
        if fixed is not None:
            return fixed, {}
        for pattern, by_method in self.open:
            if found := pattern.fullmatch(path):
                return by_method, found.groupdict()
        raise HTTPException(404)


def _allowed(by_method: ByMethod) -> list[str]:
    return sorted({*by_method, "HEAD"} if "GET" in by_method else by_method)


def read_routes(table: Iterable[Endpoint]) -> Routes:
    """Return the routes of a table, which has each method of a path once."""
    by_path: dict[str, ByMethod] = {}
    for each in table:
        by_method = by_path.setdefault(each.path, {})
        assert each.method not in by_method, f"{each.method} {each.path} is in the table twice"
        by_method[each.method] = each
    routes = Routes()
    for path, by_method in sorted(by_path.items(), key=lambda item: _parameters(item[0])):
        if "{" in path:
            takes_slashes = _takes_slashes(path, by_path)
            routes.open.append((_pattern(path, takes_slashes=takes_slashes), by_method))
        else:
            routes.fixed[path] = by_method
    return routes


def _parameters(path: str) -> list[bool]:
    """Say of each part whether it is a parameter: sorted by this, literal parts come first."""
    return [part.startswith("{") for part in path.split("/")]


def _takes_slashes(path: str, table: Iterable[str]) -> bool:
    """Say whether the last parameter of a path may contain slashes.

    A name may contain slashes: they are sent as %2F, but arrive decoded. So the last parameter
    takes all up to the end of the path, or to the words that follow it, unless another path of the
    table begins like this one and could be meant.
    """
    up_to_parameter = path[: path.rindex("}") + 1]
    others = [
        each.removeprefix(up_to_parameter)
        for each in table
        if each != path and (each == up_to_parameter or each.startswith(up_to_parameter + "/"))
    ]
    if path == up_to_parameter:
        return not others
    return not any(each == "" or "{" in each for each in others)


def _pattern(path: str, *, takes_slashes: bool) -> re.Pattern[str]:
    """Return a path's pattern."""
    pattern = _PARAMETER.sub(r"(?P<\1>[^/]+)", re.escape(path))
    if takes_slashes:
        before, _, after = pattern.rpartition("[^/]+")
        pattern = before + ".+" + after
    return re.compile(pattern, re.DOTALL)
