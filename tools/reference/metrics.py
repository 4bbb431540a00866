"""docs/reference/metrics.md: the metrics that the kernel and the built-in domains declare."""

from penstock.api.metrics import declared_metrics, type_of
from penstock.base.meter import Metric
from penstock.compose.domains import BUILT_IN
from tools.reference.blocks import code, plain, table


def blocks(_page: str) -> dict[str, str]:
    """Return the table, in the order of names."""
    declared = sorted(declared_metrics(BUILT_IN), key=lambda metric: metric.name)
    return {"metrics": table(("metric", "type", "labels", "meaning"), map(_row, declared))}


def _row(metric: Metric) -> tuple[str, ...]:
    labels = ", ".join(map(code, metric.labels)) or "none"
    return code(metric.name), type_of(metric), labels, plain(metric.help)
