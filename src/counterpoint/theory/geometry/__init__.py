"""Optimal class means: the class-level risk, its minimiser over correlation matrices, and the certificate."""
