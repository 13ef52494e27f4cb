"""What a config read from disk may use."""
