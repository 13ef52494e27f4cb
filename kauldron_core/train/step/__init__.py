"""The compiled step: how one batch changes the state, and the programs that do it."""
