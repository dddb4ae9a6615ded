"""Trials of the diagnosis on features and trainings with a known fault: how often its finding comes first."""
