"""Types, argument checks, numerics, seeding and the run folder: what every other layer stands on."""
