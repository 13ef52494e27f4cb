"""The tree of plain data: its nodes, its references, and what walks over it."""
