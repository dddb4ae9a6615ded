"""Pairwise importance as an energy (alphacl2022): contrastive covariance, deep linear and two-layer ReLU networks."""
