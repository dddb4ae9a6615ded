"""Dimensional collapse: the flows and toy networks of DirectCLR's paper."""
