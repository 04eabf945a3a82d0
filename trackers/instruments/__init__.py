"""What measures a training loop and logs what it measured: one file each, and each can be used alone."""
