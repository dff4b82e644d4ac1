"""The parts that an algorithm is composed of; see the architecture page."""
