"""Whether a trial that went wrong runs again."""

from __future__ import annotations


class RetryPolicy:
    """Counts the failures of one trial.

    A death (kill, lost node, hang) is retried up to `max_failures` times. An exception is retried once; the same text
    a second time ends the trial, however many failures are left. Exceptions count as failures too.
    """

    def __init__(self, max_failures: int):
        self._max_failures = max_failures
        self._seen: set[str] = set()
        self.num_failures = 0

    def after_death(self) -> bool:
        """Returns whether to run again after the process died."""
        self.num_failures += 1
        return self.num_failures <= self._max_failures

    def after_exception(self, text: str) -> bool:
        """Returns whether to run again after the trial raised an exception with this text."""
        is_new = text not in self._seen
        self._seen.add(text)
        self.num_failures += 1
        return is_new and self.num_failures <= self._max_failures
