"""Configs for people: as Python text, as HTML, with changes marked, as a list of leaves."""
