"""Rules that compare the trials of a pack while they train, and change what becomes of them."""
