"""The kinds of attack, one module each."""
