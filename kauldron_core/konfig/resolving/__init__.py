"""Building the objects that a config describes."""
