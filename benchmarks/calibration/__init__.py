"""Does a diagnosis find what is wrong: trainings with a known fault, and how often its finding comes first."""
