"""Runs in a PostgreSQL database: tracker, reader, options, copies, a command."""
