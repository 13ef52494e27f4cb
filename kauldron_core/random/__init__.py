"""Random keys with methods: `PRNGKey(0).fold_in('dropout').uniform((3,))`."""

from kauldron_core.random.key import PRNGKey

__all__ = ["PRNGKey"]
