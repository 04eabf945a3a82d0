"""What a distribution brings: whether each thing can be used, and whether it keeps its promise."""
