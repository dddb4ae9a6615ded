"""When minority classes merge, what the paper says of it, and what brings them apart."""
