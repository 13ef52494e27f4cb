"""What the tests of konfig share: none of them leaves its trust behind."""

import pytest

from kauldron_core.konfig.trusting import rules as trusting


@pytest.fixture(autouse=True)
def own_trust(monkeypatch):
    monkeypatch.setattr(trusting, "_packages", {})
    monkeypatch.setattr(trusting, "_folders", {})
