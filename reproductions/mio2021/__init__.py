"""Binary mutual-information losses: the linear rate that only that paper states."""
