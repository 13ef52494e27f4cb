"""Experiments that come with the package; each file says how to run it, how long it takes, and what comes out."""
