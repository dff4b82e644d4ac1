"""The parts that an algorithm is composed of; see the architecture page.

This room may use what is below it: mechanisms, data, models, wire, and whatever still is in
``parts``. Systems assemble its parts from their settings.
"""
