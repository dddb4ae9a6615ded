"""Contrast as matrix factorisation (ncl2024): co-occurrence, optimal features, identifiability, Bayes classifier."""
