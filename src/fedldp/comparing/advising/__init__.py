"""What is viable with a table: who can be protected, from whom, and at what cost.

``plan`` says what is run, ``asking`` refuses input that does not fit, ``advice`` has the rule and
the words, ``page`` makes the page for a data-protection officer.
"""

from fedldp.comparing.advising.advice import Advice
from fedldp.comparing.advising.plan import MANY, starting_point
from fedldp.comparing.advising.running import advise

__all__ = ["MANY", "Advice", "advise", "starting_point"]
