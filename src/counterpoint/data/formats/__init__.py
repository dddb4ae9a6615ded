"""Readers of files, one form each."""
