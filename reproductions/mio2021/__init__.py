"""Binary mutual-information losses: bounds that only that paper needs."""
