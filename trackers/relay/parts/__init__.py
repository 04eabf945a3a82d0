"""What a part of the relay is, and the life of a helper process."""
