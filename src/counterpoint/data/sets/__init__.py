"""Data sets by name, and the files they are published in."""
