"""The swarm on many machines: Temporal gives tasks to workers, git and HTTP carry the rest."""
