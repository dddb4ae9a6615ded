"""The training loop and its parts: the engine, optimisers, checkpoints, progress."""
