"""Measurements of features from their papers, in NumPy and plain loops over float64. Imports no tensor code."""
