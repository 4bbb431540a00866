"""What others are told, over HTTP and on the command line alike: verbs' results as wire types."""

from penstock.domains.slots import wire
from penstock.domains.slots.config import Config
from penstock.domains.slots.forecast import Forecast
from penstock.domains.slots.inspect import Move
from penstock.domains.slots.reflow import Reflow
from penstock.domains.slots.slot import MILLISECOND, Slot, instant_text


def tell_assigned(slot: Slot) -> wire.Assigned:
    """Return what a caller is told who has asked for a slot."""
    return wire.Assigned(
        event_id=slot.event_id,
        scheduled_time=instant_text(slot.scheduled_at),
        delay_ms=slot.delay_ms,
    )


def tell_slot(slot: Slot) -> wire.Slot:
    """Return all that is known of a slot."""
    return wire.Slot(
        event_id=slot.event_id,
        config_name=slot.pool,
        requested_time=instant_text(slot.requested_at),
        scheduled_time=instant_text(slot.scheduled_at),
        delay_ms=slot.delay_ms,
        window_start=instant_text(slot.window_at),
        config_id=slot.config_id,
        created_at=instant_text(slot.created_at),
    )


def tell_config(config: Config) -> wire.Config:
    """Return one version of a pool's rule."""
    return wire.Config(
        config_id=config.config_id,
        config_name=config.pool,
        version=config.version,
        max_per_window=config.max_per_window,
        window_size=config.window_size,
        spacing=config.spacing,
        horizon=config.horizon,
        calendar=config.calendar,
        effective_from=instant_text(config.effective_at),
        active=config.is_active,
        created_at=instant_text(config.created_at),
        created_by=config.created_by,
    )


def tell_forecast(pool: str, count: int, found: Forecast) -> wire.Forecast:
    """Return when so many would be through."""
    return wire.Forecast(
        config_name=pool,
        count=count,
        first=instant_text(found.first_at),
        last=instant_text(found.last_at),
        windows_used=found.windows,
    )


def tell_reflow(pool: str, done: Reflow, *, is_dry_run: bool) -> wire.Reflow:
    """Return what was moved, or would be."""
    delay = done.longest_delay
    return wire.Reflow(
        config_name=pool,
        dry_run=is_dry_run,
        reflow_id=done.reflow_id,
        frozen_until=instant_text(done.frozen_until),
        considered=done.considered,
        moved=done.moved,
        last_before=None if done.last_before is None else instant_text(done.last_before),
        last_after=None if done.last_after is None else instant_text(done.last_after),
        longest_delay_ms=None if delay is None else delay // MILLISECOND,
    )


def tell_move(move: Move) -> wire.Move:
    """Return one move of a reflow."""
    return wire.Move(
        reflow_id=move.reflow_id,
        event_id=move.event_id,
        config_name=move.pool,
        moved_from=instant_text(move.moved_from),
        moved_to=instant_text(move.moved_to),
        moved_at=instant_text(move.moved_at),
    )
