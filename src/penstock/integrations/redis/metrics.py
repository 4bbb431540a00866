"""What the shared gate counts; importable without the extra."""

from penstock.base.meter import Counter

FALLBACKS = Counter("gate_fallbacks_total", "Times Redis was lost and limits became local.")
LOCAL_ENTERS = Counter(
    "gate_local_enters_total", "Calls decided locally while Redis was unavailable."
)

METRICS = (FALLBACKS, LOCAL_ENTERS)
