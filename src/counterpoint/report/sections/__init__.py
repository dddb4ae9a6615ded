"""Sections of a run's page."""
