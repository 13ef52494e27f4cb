"""Describing calls instead of making them: imports as proxies, mocked modules, defaults of calls."""
