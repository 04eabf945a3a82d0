"""TensorBoard's event files as a source."""
