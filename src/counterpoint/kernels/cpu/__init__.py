"""Pair reductions on a CPU: tiles, small batches, one pass."""
