"""Override texts: what `model.hidden=64` means, and how it is refused."""
