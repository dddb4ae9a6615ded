"""Dynamics of linear and ReLU networks under augmentation (directclr2022): dimensional collapse."""
