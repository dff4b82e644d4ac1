"""The simulator: one round loop over simulated clients."""
