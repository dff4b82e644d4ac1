"""How a server counts reports of bits, in whatever form they arrive."""

from __future__ import annotations

import numpy as np

from fedldp.mechanisms import Counts
from fedldp.protocol.wire import Counted, Report, Reports, Shuffled


def count(counts: Counts, report: Report | Reports | Shuffled | Counted) -> None:
    """Add reports of bits to ``counts``, in whatever form they arrive."""
    if isinstance(report, Report):
        counts.add(report.payload)
    elif isinstance(report, Reports):
        counts.add_many(report.payloads)
    elif isinstance(report, Counted):
        counts.add_counts(report.ones, report.reports)
    else:
        coordinates = report.positions[:, None] * report.chunk + np.arange(report.chunk)
        inside = coordinates < report.size
        counts.add_bits(coordinates[inside], report.bits[inside])
