"""Unconstrained features trained with our losses, beside the optimum."""
