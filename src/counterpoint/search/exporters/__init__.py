"""What other databases import: one module per database, each a function that writes an index into a folder."""
