"""Which domains a process runs, and which it refuses: entry points of real distribution folders."""

from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path

import pytest

from penstock.base.errors import BadSetting
from penstock.base.settings import read_once
from penstock.cli.root import command_line
from penstock.compose.domains import KERNEL, chosen_domains, migration_packages
from penstock.contract.errors import BadDomain
from penstock.domains.payments.domain import PAYMENTS
from tests.distribution import install_domain

Offer = Callable[..., None]
Choose = Callable[[str], None]


@pytest.fixture
def offer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Offer:
    """Install a distribution with one module that offers a domain under a name."""
    monkeypatch.syspath_prepend(tmp_path)

    return partial(install_domain, tmp_path)


@pytest.fixture
def choose(monkeypatch: pytest.MonkeyPatch) -> Generator[Choose]:
    """Set PENSTOCK_DOMAINS; settings are read again."""

    def set_variable(names: str) -> None:
        monkeypatch.setenv("PENSTOCK_DOMAINS", names)
        read_once.cache_clear()

    monkeypatch.delenv("PENSTOCK_DOMAINS", raising=False)
    read_once.cache_clear()
    yield set_variable
    read_once.cache_clear()


def domain_code(name: str, arguments: str = "") -> str:
    return f"from penstock.contract import Domain\nDOMAIN = Domain(name={name!r}{arguments})\n"


@pytest.mark.usefixtures("choose")
def test_without_the_variable_the_built_in_domains_run(offer: Offer) -> None:
    """Installing a package must not change what a process does; it is not even imported."""
    offer("parcels", module="parcels_unnamed", code="raise SystemExit")

    names = [domain.name for domain in chosen_domains()]

    assert names == ["slots", "webhooks", "mail", "outbox", "payments"]


def test_named_domains_run_in_the_given_order_and_once(offer: Offer, choose: Choose) -> None:
    code = domain_code("parcels", ", migration_packages=['parcels_named']")
    offer("parcels", module="parcels_named", code=code)
    choose("parcels, slots parcels")

    chosen = chosen_domains()

    assert [domain.name for domain in chosen] == ["parcels", "slots"]
    assert migration_packages(chosen) == [
        "penstock.kernel",
        "parcels_named",
        "penstock.domains.slots",
    ]


def test_an_unknown_name_is_refused_with_the_known_ones(offer: Offer, choose: Choose) -> None:
    offer("parcels", module="parcels_known", code=domain_code("parcels"))
    choose("slots parcel")

    assert refusal() == (
        "PENSTOCK_DOMAINS: no installed package offers 'parcel'; "
        "known: mail, outbox, parcels, payments, slots, webhooks"
    )


@pytest.mark.parametrize(
    ("module", "code", "reason"),
    [
        (
            "parcels_unimportable",
            "import a_module_that_is_not_there",
            "ModuleNotFoundError: No module named 'a_module_that_is_not_there'",
        ),
        (
            "parcels_empty",
            "",
            "AttributeError: module 'parcels_empty' has no attribute 'DOMAIN'",
        ),
        ("parcels_failing", "raise ValueError('no sql')", "ValueError: no sql"),
    ],
)
def test_a_domain_that_cannot_be_loaded_is_refused(
    offer: Offer, choose: Choose, *, module: str, code: str, reason: str
) -> None:
    """The message must say which package to repair."""
    offer("parcels", module=module, code=code)
    choose("parcels")

    prefix = f"PENSTOCK_DOMAINS: 'parcels' ({module}:DOMAIN) cannot be loaded: "
    assert refusal() == prefix + reason


def test_what_is_not_a_domain_is_refused(offer: Offer, choose: Choose) -> None:
    offer("parcels", module="parcels_function", code="def DOMAIN(resources): ...")
    choose("parcels")

    assert refusal() == "PENSTOCK_DOMAINS: 'parcels' (parcels_function:DOMAIN) is not a Domain"


def test_a_domain_of_another_name_is_refused(offer: Offer, choose: Choose) -> None:
    """Metrics, tags and messages carry the domain's own name, which must be the one chosen."""
    offer("parcels", module="parcels_renamed", code=domain_code("letters"))
    choose("parcels")

    place = "'parcels' (parcels_renamed:DOMAIN)"
    assert refusal() == f"PENSTOCK_DOMAINS: {place} declares the name 'letters'"


def test_a_name_that_two_packages_offer_is_refused(offer: Offer, choose: Choose) -> None:
    """It would be undefined which of the two runs."""
    offer("parcels", module="parcels_one", code=domain_code("parcels"))
    offer("parcels", module="parcels_two", code=domain_code("parcels"))
    choose("parcels")

    assert refusal() == (
        "PENSTOCK_DOMAINS: several packages offer 'parcels': parcels_one:DOMAIN, parcels_two:DOMAIN"
    )


@pytest.mark.parametrize(("command", "owner"), [("lane", "kernel"), ("slots", "slots")])
def test_a_command_that_exists_already_is_refused(
    offer: Offer, choose: Choose, *, command: str, owner: str
) -> None:
    """A domain must replace neither a verb of Penstock nor a command of another domain."""
    module = f"parcels_{command}"
    arguments = f", commands=[click.Group({command!r})]"
    offer("parcels", module=module, code="import click\n" + domain_code("parcels", arguments))
    choose("slots parcels")

    with pytest.raises(BadDomain) as refused:
        command_line()

    assert str(refused.value) == (
        f"domain 'parcels' declares the command {command!r}, and so does {owner!r}"
    )


def test_a_command_of_a_named_domain_is_there(offer: Offer, choose: Choose) -> None:
    arguments = ", commands=[click.Group('parcels')]"
    code = "import click\n" + domain_code("parcels", arguments)
    offer("parcels", module="parcels_commands", code=code)
    choose("parcels")

    commands = command_line().commands

    assert "parcels" in commands
    assert "lane" in commands
    assert not {"slots", "listen"} & commands.keys(), "PENSTOCK_DOMAINS names neither domain"


def refusal() -> str:
    with pytest.raises(BadSetting) as refused:
        chosen_domains()
    return str(refused.value)


def test_the_kernel_declares_no_metric_of_a_domain() -> None:
    """A metric is declared where it is counted, and is gone with its domain."""
    started = "dispatch_workflow_started_total", "dispatch_workflow_start_failures_total"

    assert not {metric.name for metric in KERNEL.metrics} & {*started}
    assert {metric.name for metric in PAYMENTS.metrics} >= {*started}
    assert not [metric for metric in KERNEL.metrics if "outbox" in metric.help.casefold()]
