"""Values across ranks: combined by a process of the relay."""
