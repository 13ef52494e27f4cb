"""Configs as JSON text: written, read back, and exported from built objects."""
