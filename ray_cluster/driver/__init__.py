"""The driver of a sweep: lays it out, runs it on Ray Tune, watches it, and reads back what came of it."""
