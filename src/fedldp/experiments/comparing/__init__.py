"""Compare systems at an equal guarantee and with equal effort spent on their hyperparameters.

The rule: every contestant is calibrated to the same epsilon, and the statement of each of its runs
is read to check that epsilon. Every contestant has the same number of tries, that is, of candidate
hyperparameters. Tries are scored with a separate seed, on examples that no client has or on clients
that do not take part. The test set plays no part in the choice. The chosen try is then measured
with other seeds, with all clients, on the test set.

If the held-out examples are private, choosing by scores on them is itself a release. No epsilon
here covers that release.

It does not depend on any data set, list of systems or page: its callers supply these.
"""

from fedldp.experiments.comparing.compared import Compared, compare
from fedldp.experiments.comparing.comparison import Cell, Comparison, Contestant, Try

__all__ = [
    "Cell",
    "Compared",
    "Comparison",
    "Contestant",
    "Try",
    "compare",
    "compared",
    "design",
    "means",
]
