"""Runs as typed functions."""
