"""Embedding tables: one row per sample, for other programs to read."""
