"""The cluster and its machines: what there is, what fits where, and how a Ray is started or joined."""
