"""What the tests of sweeps share: as those of konfig, none of them leaves its trust behind."""

from tests.kauldron_core.konfig.conftest import own_trust as own_trust
