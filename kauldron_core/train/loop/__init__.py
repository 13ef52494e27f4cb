"""The loop over steps: what it holds open, what it tells, and where that goes."""
