"""What any part may use: files, processes, terminals, redaction."""
