"""The training loop and what it stands on: the engine, optimisers, checkpoints, progress."""
