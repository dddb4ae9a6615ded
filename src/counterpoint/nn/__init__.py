"""Encoders, projectors, output maps, and the trained encoder a user loads."""
