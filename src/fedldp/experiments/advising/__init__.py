"""Advice on a table: who can be protected, from whom, and at what cost.

``plan`` determines the runs, ``asking`` refuses unsuitable input, ``advice`` applies the rule and
words the verdicts, and ``page`` makes the page for a data-protection officer.
"""

from fedldp.experiments.advising.advice import Advice
from fedldp.experiments.advising.plan import MANY, starting_point
from fedldp.experiments.advising.running import advise

__all__ = ["MANY", "Advice", "advise", "running", "starting_point"]
