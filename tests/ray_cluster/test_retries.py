"""When a trial that went wrong runs again (case S08)."""

from ray_cluster.workers.retries import RetryPolicy


def test_a_death_is_retried_up_to_max_failures():
    """S08: a death is retried up to max failures."""
    policy = RetryPolicy(2)
    assert [policy.after_death() for _ in range(3)] == [True, True, False]


def test_an_exception_is_retried_once_and_the_same_text_twice_ends_the_trial():
    """S08: an exception is retried once and the same text twice ends the trial."""
    policy = RetryPolicy(5)
    assert policy.after_exception("ValueError: a")
    assert policy.after_exception("OSError: disk")
    assert not policy.after_exception("ValueError: a")


def test_without_failures_allowed_nothing_is_retried():
    assert not RetryPolicy(0).after_exception("ValueError: a")
    assert not RetryPolicy(0).after_death()


def test_exceptions_and_deaths_share_the_budget():
    policy = RetryPolicy(1)
    assert policy.after_death()
    assert not policy.after_exception("ValueError: a")
