"""Two domains that declare the same name are refused at start, with the names of both."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, ClassVar

import click
import pytest
from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from penstock.api import create_app
from penstock.app import Penstock
from penstock.base.errors import Conflict
from penstock.compose.domains import BUILT_IN, KERNEL
from penstock.contract import (
    Call,
    Counter,
    Domain,
    Endpoint,
    Kind,
    NoParameters,
    OwnedLane,
    Runtime,
    check_domains,
    endpoint,
)
from penstock.contract.conflicts import check_runtimes
from penstock.contract.errors import BadDomain
from penstock.contract.http import Method
from penstock.kernel.item import Item


class ParcelSettings(BaseSettings):
    """PARCEL_DEPOT."""

    model_config = SettingsConfigDict(env_prefix="PARCEL_")

    depot: str = ""


class LetterSettings(BaseSettings):
    """Reads PARCEL_DEPOT too."""

    box: str = Field(default="", validation_alias="parcel_depot")


class PortSettings(BaseSettings):
    """Reads a variable of Penstock itself."""

    api_port: int = Field(default=0, validation_alias="PENSTOCK_PORT")


class ParcelConflict(Conflict):
    """An error of parcels."""

    code: ClassVar[str] = "parcel-conflict"


class LetterConflict(Conflict):
    """An error of letters with the code of another."""

    code: ClassVar[str] = "parcel-conflict"


class Unnamed(Conflict):
    """An error whose author has forgotten its code."""


SENT = Counter("parcels_sent_total", "Parcels sent.")

PARCELS = Domain(
    name="parcels",
    lanes=[OwnedLane(name="parcels")],
    settings=[ParcelSettings],
    errors=[ParcelConflict],
    metrics=[SENT],
    commands=[click.Group("parcels")],
)


@pytest.mark.parametrize(
    ("part", "named"),
    [
        ({"lanes": [OwnedLane(name="parcels")]}, "the lane 'parcels'"),
        ({"settings": [LetterSettings]}, "the variable 'PARCEL_DEPOT'"),
        ({"errors": [LetterConflict]}, "the error code 'parcel-conflict'"),
        (
            {"metrics": [Counter("parcels_sent_total", "Others.")]},
            "the metric 'parcels_sent_total'",
        ),
        ({"commands": [click.Command("parcels")]}, "the command 'parcels'"),
    ],
)
def test_a_name_that_two_domains_declare_is_refused(part: dict[str, Any], named: str) -> None:
    """One of the two would be replaced silently, or both be counted as one."""
    letters = Domain(name="letters", **part)

    with pytest.raises(BadDomain) as refused:
        check_domains([KERNEL, PARCELS, letters])

    assert str(refused.value) == f"domain 'letters' declares {named}, and so does 'parcels'"


@pytest.mark.parametrize(
    ("part", "named"),
    [
        ({"settings": [PortSettings]}, "the variable 'PENSTOCK_PORT'"),
        ({"errors": [Unnamed]}, "the error code 'conflict'"),
        ({"metrics": [Counter("attempts_total", "Ours.")]}, "the metric 'attempts_total'"),
    ],
)
def test_a_name_of_the_kernel_is_refused(part: dict[str, Any], named: str) -> None:
    letters = Domain(name="letters", **part)

    with pytest.raises(BadDomain) as refused:
        check_domains([KERNEL, letters])

    assert str(refused.value) == f"domain 'letters' declares {named}, and so does 'kernel'"


@pytest.mark.parametrize("name", ["kernel", "parcels"])
def test_a_domain_with_a_name_that_is_taken_is_refused(name: str) -> None:
    """Added twice, its services would run twice."""
    with pytest.raises(BadDomain, match=rf"^domain '{name}' declares the name '{name}' twice$"):
        check_domains([KERNEL, PARCELS, Domain(name=name)])


def test_two_domains_may_share_one_section_or_metric() -> None:
    """What an integration declares is listed by every domain that uses it."""
    check_domains([PARCELS, Domain(name="letters", settings=[ParcelSettings], metrics=[SENT])])


def test_built_in_domains_do_not_conflict() -> None:
    check_domains([KERNEL, *BUILT_IN])


# ------------------------------------------------------------------------------------ runtimes


async def handle(_item: Item[str]) -> None:
    """Do nothing."""


async def answer(_call: Call[NoParameters, None]) -> None:
    """Do nothing."""


def described(method: Method, path: str) -> Endpoint:
    return endpoint(method, path, answer, scope=None, summary="Nothing")


def kind(lane: str) -> Kind[str]:
    return Kind(lane=lane, payload_type=str, handle=handle)


def named(name: str) -> Domain:
    return Domain(name=name)


@pytest.mark.parametrize(
    ("first", "second", "refused"),
    [
        (described("POST", "/post"), described("POST", "/post"), "the endpoint POST /post"),
        (
            described("GET", "/post/{id}"),
            described("GET", "/post/{number}"),
            "the endpoint GET /post/{number}",
        ),
    ],
)
def test_an_endpoint_of_two_domains_is_refused(
    first: Endpoint, second: Endpoint, refused: str
) -> None:
    """The later one would answer, and nobody would notice."""
    built = [
        (named("letters"), Runtime(endpoints=[first])),
        (named("parcels"), Runtime(endpoints=[second])),
    ]

    with pytest.raises(BadDomain) as caught:
        check_runtimes(built)

    assert str(caught.value) == f"domain 'parcels' declares {refused}, and so does 'letters'"


def test_an_endpoint_that_one_domain_declares_twice_is_refused() -> None:
    repeated = Runtime(endpoints=[described("GET", "/post"), described("GET", "/post")])

    with pytest.raises(
        BadDomain, match=r"^domain 'letters' declares the endpoint GET /post twice$"
    ):
        check_runtimes([(named("letters"), repeated)])


def test_methods_of_one_path_and_fixed_paths_beside_open_ones_are_accepted() -> None:
    endpoints = [
        described("GET", "/post/{id}"),
        described("DELETE", "/post/{id}"),
        described("GET", "/post/latest"),
        described("GET", "/post/{id}/stamps"),
    ]

    check_runtimes([(named("letters"), Runtime(endpoints=endpoints))])


def test_a_lane_with_handlers_of_two_domains_is_refused() -> None:
    """It would be undefined which of the two runs."""
    built = [
        (named("letters"), Runtime(kinds=[kind("post")])),
        (named("parcels"), Runtime(kinds=[kind("post")])),
    ]

    with pytest.raises(BadDomain) as caught:
        check_runtimes(built)

    assert str(caught.value) == (
        "domain 'parcels' declares a handler of the lane 'post', and so does 'letters'"
    )


def test_a_declared_lane_without_a_kind_is_refused() -> None:
    """It is a misspelled name: policy and guards would never be applied."""
    letters = Domain(name="letters", lanes=[OwnedLane(name="leters", policy={"rate": 5})])

    with pytest.raises(BadDomain) as caught:
        check_runtimes([(letters, Runtime(kinds=[kind("letters")]))])

    assert str(caught.value) == ("domain 'letters' declares the lane 'leters', and no kind of it")


@pytest.mark.parametrize(
    ("lane", "reason"),
    [
        (
            OwnedLane(name="post", guards={"cancle": "use letters recall"}),
            "guards or allows 'cancle' in 'post', which is not a verb or field",
        ),
        (
            OwnedLane(name="post", allows=["set:speed"]),
            "guards or allows 'set:speed' in 'post', which is not a verb or field",
        ),
        (
            OwnedLane(name="post", guards={"enqueue": "use letters"}, allows=["enqueue"]),
            "guards and allows 'enqueue' in 'post'",
        ),
    ],
)
def test_a_guard_that_means_nothing_is_refused(lane: OwnedLane, reason: str) -> None:
    """A misspelled guard would protect nothing."""
    with pytest.raises(BadDomain) as refused:
        check_domains([Domain(name="letters", lanes=[lane])])

    assert str(refused.value) == f"domain 'letters' {reason}"


# ----------------------------------------------------------------------------------------- app


async def test_an_app_with_domains_that_conflict_does_not_open(dsn: str) -> None:
    """Declared names are compared before anything is built, and what runs before it starts."""
    app = Penstock(dsn, domains=[PARCELS, replace(PARCELS, name="letters")])

    with pytest.raises(BadDomain, match="the lane 'parcels', and so does 'parcels'"):
        async with app:
            pass


async def test_an_app_whose_domains_share_an_endpoint_closes_what_they_have_built(
    dsn: str,
) -> None:
    closed: list[str] = []

    def closes(name: str) -> Callable[[], Awaitable[None]]:
        async def close() -> None:
            closed.append(name)

        return close

    def domain(name: str) -> Domain:
        runtime = Runtime(endpoints=[described("GET", "/post")], close=[closes(name)])
        return Domain(name=name, build=lambda _: runtime)

    app = Penstock(dsn, domains=[domain("letters"), domain("parcels")])

    with pytest.raises(BadDomain, match="'parcels' declares the endpoint GET /post, and so does"):
        async with app:
            pass

    assert closed == ["parcels", "letters"]


async def test_an_endpoint_of_the_kernel_cannot_be_replaced(dsn: str) -> None:
    runtime = Runtime(endpoints=[described("GET", "/items/{number}")])
    domains = [Domain(name="parcels", build=lambda _: runtime)]

    async with Penstock(dsn, domains=domains) as app:
        with pytest.raises(BadDomain) as caught:
            create_app(app)

    assert str(caught.value) == (
        "domain 'parcels' declares the endpoint GET /items/{number}, and so does 'kernel'"
    )


def test_an_error_of_a_declaration_carries_its_data() -> None:
    with pytest.raises(BadDomain) as refused:
        check_domains([PARCELS, PARCELS])

    assert refused.value.domain == "parcels"
    assert refused.value.reason == "declares the name 'parcels' twice"
