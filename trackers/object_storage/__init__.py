"""Runs on object storage (S3, Google Cloud Storage, Azure, a directory): sent there in pieces, and copied back."""
