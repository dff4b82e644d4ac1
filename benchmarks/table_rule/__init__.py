"""The rule for tables beside settings that were tuned by hand, and Opacus; see ``measure``."""
