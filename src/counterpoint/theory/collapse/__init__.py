"""Collapse of minority classes: when they merge, what the paper says of it, and what brings them apart."""
