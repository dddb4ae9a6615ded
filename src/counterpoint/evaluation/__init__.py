"""Protocols that say how good features are, each beside its baselines."""
