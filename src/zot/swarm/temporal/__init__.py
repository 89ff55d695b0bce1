"""The swarm on many machines: Temporal assigns tasks to workers; git and HTTP carry the data."""
