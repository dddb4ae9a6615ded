"""The training loop and what it stands on: Fabric, optimisers, checkpoints, progress."""
