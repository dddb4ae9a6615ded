"""An attack on the promises of README, drawn from a seed, that goes on as long as it is given time."""
