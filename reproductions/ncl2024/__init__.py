"""Non-negative contrastive learning: its factorisations and their uniqueness."""
