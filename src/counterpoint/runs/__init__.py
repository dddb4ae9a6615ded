"""What a verb does: train, resume, diagnose, verify, preview; nothing here knows a paper."""
