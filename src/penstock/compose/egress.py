"""The HTTP client for URLs that others chose, with the addresses that it may reach."""

from ipaddress import ip_address
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import Field, IPvAnyNetwork
from pydantic_settings import BaseSettings

from penstock.base.settings import SECTION, AsList, section
from penstock.integrations.http_client import Client, Egress, process_limits


class EgressSettings(BaseSettings):
    """Which addresses and ports webhooks may reach."""

    model_config = SECTION

    egress_allow: Annotated[tuple[IPvAnyNetwork, ...], *AsList] = ()
    """Networks that webhooks may reach besides public addresses, as CIDRs, such as
    `10.20.0.0/16 fd00:20::/32`."""
    egress_ports: Annotated[tuple[Annotated[int, Field(ge=1, le=65535)], ...], *AsList] = ()
    """Ports that webhooks may reach, such as `80 443`. Absent: all."""


def make_client(egress: Egress | None = None) -> Client:
    """Return a client that refuses every other address; it opens no connection by itself.

    Without `egress`, those of the environment may be reached.
    """
    return Client(egress or _chosen_egress(), limits=process_limits())


def _chosen_egress() -> Egress:
    chosen = section(EgressSettings)
    return Egress(chosen.egress_allow, ports=frozenset(chosen.egress_ports) or None)


def hint_at_setting(url: str) -> str:
    """Return what to set so that a URL with a numeric address, which was refused, is allowed."""
    place = urlsplit(url)
    ports = section(EgressSettings).egress_ports
    if ports and place.port not in ports:
        return "give --port one of PENSTOCK_EGRESS_PORTS"
    address = ip_address(place.hostname or "")
    network = "127.0.0.0/8" if address.is_loopback and address.version == 4 else str(address)
    return f"set PENSTOCK_EGRESS_ALLOW={network}, here and where the worker runs"
