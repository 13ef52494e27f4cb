"""The words of a command line, sorted before Click sees them: overrides, axes, flag files and options."""
