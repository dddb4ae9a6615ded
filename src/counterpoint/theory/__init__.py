"""What the papers prove, as functions: optimal geometry, thresholds, and the dynamics of learning."""
