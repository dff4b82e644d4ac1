"""Certified bounds: numbers in, numbers out, rounded to the safe side. No event is known here."""
