"""Pairwise importance: what only the paper on alpha-CL needs."""
