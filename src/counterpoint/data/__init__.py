"""Sources, views, order and loading of samples."""
