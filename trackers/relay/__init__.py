"""What runs beside training: the supervisor, and one delivery for each tracker."""
