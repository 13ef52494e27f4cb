"""Which trials can be trained in one program: found by tracing, tried out, timed and sized."""
