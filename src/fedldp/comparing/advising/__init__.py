"""What is viable with a table: who can be protected, from whom, and what that costs.

``plan`` says what is run, ``asking`` refuses what does not fit, ``advice`` has the rule and the
words, ``page`` the page for a data-protection officer.
"""

from fedldp.comparing.advising.advice import Advice
from fedldp.comparing.advising.plan import MANY, starting_point
from fedldp.comparing.advising.running import advise

__all__ = ["MANY", "Advice", "advise", "starting_point"]
