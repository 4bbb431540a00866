"""What runs when the app opens: the handler of the lane, services, endpoints, the Python API."""

from collections.abc import Sequence
from functools import partial

from penstock.contract import Kind, Resources, Runtime, Service
from penstock.domains.outbox.audit.archive import Archive
from penstock.domains.outbox.audit.retain import ArchiveRetainer
from penstock.domains.outbox.audit.seal import Sealer
from penstock.domains.outbox.batcher import InstructionBatcher
from penstock.domains.outbox.check_call import CallChecker
from penstock.domains.outbox.control.checks import Control
from penstock.domains.outbox.control.recheck import Recheck
from penstock.domains.outbox.crash_point import CrashPoint, never_crash
from penstock.domains.outbox.ending import hold_unknown
from penstock.domains.outbox.enqueue import Outbox
from penstock.domains.outbox.event import Announce
from penstock.domains.outbox.http import control, instructions, rails, results
from penstock.domains.outbox.lanes import LANE
from penstock.domains.outbox.loader import InstructionLoader, OutboxRef
from penstock.domains.outbox.metrics import count_rows
from penstock.domains.outbox.rails.registry import CachedRails, read_result_secret
from penstock.domains.outbox.rails.simulator.service import SimulatorService
from penstock.domains.outbox.reconcile.reconciler import Reconciler
from penstock.domains.outbox.reconcile.resolve import Resolver
from penstock.domains.outbox.reconcile.results import Results
from penstock.domains.outbox.send import HANDLER_TIMEOUT, Send
from penstock.domains.outbox.settings import OutboxSettings
from penstock.domains.outbox.validate import validate


def build(
    resources: Resources,
    *,
    known_rails: CachedRails,
    simulator: SimulatorService,
    listeners: Sequence[Announce],
    crash_point: CrashPoint = never_crash,
) -> Runtime:
    """Build the domain; `crash_point` is called at each labelled point of a sending."""
    archive = Archive(
        log=resources.log,
        listeners=listeners,
        count=partial(count_rows, resources.meter),
        crash_point=crash_point,
    )
    loader = InstructionLoader(rails=known_rails, control=Control(clock=resources.clock))
    resolver = Resolver(archive=archive)
    reported = Results(
        rails=known_rails,
        resolver=resolver,
        secret_of=partial(read_result_secret, vault=resources.vault),
        log=resources.log,
    )
    send = Send(
        checker=CallChecker(resources.pool),
        validate=validate,
        clock=resources.clock,
        log=resources.log,
        crash_point=crash_point,
    )
    reconciler = Reconciler(
        pool=resources.pool,
        loader=loader,
        resolver=resolver,
        results=reported,
        clock=resources.clock,
        log=resources.log,
        crash_point=crash_point,
    )
    return Runtime(
        kinds=[
            Kind(
                lane=LANE,
                payload_type=OutboxRef,
                handle=send,
                preload=loader.preload,
                record=archive.record,
                timeout=HANDLER_TIMEOUT,
                when_unknown=hold_unknown,
            )
        ],
        services=[
            Service(name="outbox.simulator", run=simulator.run),
            Service(name="outbox.reconcile", run=reconciler.run),
            Service(name="outbox.recheck", run=Recheck(pool=resources.pool, archive=archive).run),
            Service(name="outbox.seal", run=Sealer(resources.pool).run),
            Service(name="outbox.retain", run=_retainer(resources).run),
        ],
        endpoints=[
            *instructions.endpoints(
                instructions.Api(
                    batcher=InstructionBatcher(resources.pool), scheme_of=known_rails.scheme_of
                )
            ),
            *results.endpoints(
                results.ResultApi(results=reported, resolver=resolver, clock=resources.clock)
            ),
            *control.endpoints(control.ControlApi(archive=archive)),
            *rails.endpoints(rails.RailsApi(vault=resources.vault, simulator=simulator)),
        ],
        apis=[Outbox(pool=resources.pool, scheme_of=known_rails.scheme_of)],
    )


def _retainer(resources: Resources) -> ArchiveRetainer:
    return ArchiveRetainer(
        pool=resources.pool,
        log=resources.log,
        months_kept=resources.section(OutboxSettings).outbox_archive_months,
    )
