"""Mutual information and convergence bounds of binary contrastive losses (mio2021)."""
