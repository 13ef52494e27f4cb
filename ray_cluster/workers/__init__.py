"""The processes of a trial: the supervisor without JAX, and the JAX processes that it starts."""
