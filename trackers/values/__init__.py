"""What people pass to ``log``, made into what a record holds."""
