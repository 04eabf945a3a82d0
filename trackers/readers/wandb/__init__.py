"""W&B as a source: its server, and its offline files."""
