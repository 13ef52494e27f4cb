"""Searchers and schedulers of Ray Tune, and the trials that they make."""
