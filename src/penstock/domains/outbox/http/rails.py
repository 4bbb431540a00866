"""Rails, their codes and the simulator's ledger over REST."""

from dataclasses import dataclass

from msgspec import UNSET

from penstock.base.vault import Vault
from penstock.contract.http import Call, Endpoint, NoParameters, endpoint
from penstock.domains.outbox.rails import codes, registry, wire
from penstock.domains.outbox.rails.simulator.service import SimulatorService


@dataclass(frozen=True, slots=True, kw_only=True)
class RailsApi:
    """The handlers that need more than a connection."""

    vault: Vault
    simulator: SimulatorService

    async def put_rail(self, call: Call[wire.RailRef, wire.NewRail]) -> wire.Rail:
        """Create or replace a rail."""
        row = wire.to_row(call.parameters.rail_type, call.body)
        async with call.connection() as db:
            await registry.put_rail(
                db,
                row,
                vault=self.vault,
                who=call.who,
                secret=call.body.secret,
                result_secret=call.body.result_secret,
            )
            stored = await registry.list_rails(db)
            notice = await registry.find_notice(db, row)
        return wire.to_wire_rail(
            next((each for each in stored if each.rail_type == row.rail_type), row), notice
        )

    async def show_ledger(self, call: Call[wire.LedgerQuery, None]) -> wire.LedgerPage:
        """Show what the simulator was paid."""
        query = call.parameters
        payments, totals = await self.simulator.list(after=query.after, limit=query.limit)
        return wire.LedgerPage(payments=payments, totals=totals)


async def list_rails(call: Call[NoParameters, None]) -> wire.Rails:
    """Show the rails."""
    async with call.connection() as db:
        found = await registry.list_rails(db)
    return wire.Rails(rails=[wire.to_wire_rail(each) for each in found])


async def remove_rail(call: Call[wire.RailRef, None]) -> wire.RemovedRail:
    """Remove a rail."""
    rail_type = call.parameters.rail_type
    async with call.connection() as db:
        notice = await registry.remove_rail(db, rail_type, who=call.who)
    return wire.RemovedRail(rail_type=rail_type, notice=notice or UNSET)


async def list_codes(call: Call[wire.CodeQuery, None]) -> wire.Codes:
    """Show the codes."""
    async with call.connection() as db:
        found = await codes.list_codes(db, call.parameters.code_set)
    return wire.Codes(codes=[wire.to_wire_code(each) for each in found])


async def put_code(call: Call[wire.CodeRef, wire.NewCode]) -> wire.Code:
    """Create or replace a code."""
    given = codes.Code(
        code_set=call.parameters.code_set,
        code=call.parameters.code,
        code_class=call.body.code_class,
        meaning=call.body.meaning,
        source=call.body.source,
    )
    async with call.connection() as db:
        await codes.put_code(db, given, who=call.who)
    return wire.to_wire_code(given)


async def remove_code(call: Call[wire.CodeRef, None]) -> None:
    """Remove a code."""
    async with call.connection() as db:
        await codes.remove_code(db, call.parameters.code_set, call.parameters.code, who=call.who)


def endpoints(api: RailsApi) -> tuple[Endpoint, ...]:
    """Return the table of endpoints."""
    return (
        endpoint(
            "GET", "/outbox/rails", list_rails, scope="read",
            summary="List the rails, without their secrets",
        ),
        endpoint(
            "PUT", "/outbox/rails/{rail_type}", api.put_rail, scope="admin",
            summary="Create or replace a rail",
            body_bytes_max=2 * registry.CONFIG_BYTES_MAX,
        ),
        endpoint(
            "DELETE", "/outbox/rails/{rail_type}", remove_rail, scope="admin",
            summary="Remove a rail; its instructions wait",
        ),
        endpoint(
            "GET", "/outbox/codes", list_codes, scope="read",
            summary="List the codes of one set, or of all",
        ),
        endpoint(
            "PUT", "/outbox/codes/{code_set}/{code}", put_code, scope="admin",
            summary="Set what a code means for an instruction",
        ),
        endpoint(
            "DELETE", "/outbox/codes/{code_set}/{code}", remove_code, scope="admin",
            statuses=(204,),
            summary="Remove a code, which is unknown from then on",
        ),
        endpoint(
            "GET", "/outbox/simulator/ledger", api.show_ledger, scope="read",
            summary="Show the ledger of the simulator, if it runs in this process",
        ),
    )  # fmt: skip
