"""Methods: how encoder, projector, output map and loss are wired, and the named methods."""
