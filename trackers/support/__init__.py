"""General helpers: files, processes, terminals, redaction."""
