"""Pages about a geometry or a reproduced figure."""
