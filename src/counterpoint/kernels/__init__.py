"""The pair reductions: what every pairwise loss is computed from, in one signature per implementation."""
