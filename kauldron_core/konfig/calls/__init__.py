"""The calls that a config describes: their targets, the arguments that these take, and what fits an annotation."""
