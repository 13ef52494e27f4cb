"""The single-process library of kauldron-ray. Import its rooms directly: `from kauldron_core import kd`."""
