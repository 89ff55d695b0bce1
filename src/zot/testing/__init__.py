"""Door for people who write plug-ins: a model server that misbehaves on demand, and checks.

Nothing here is loaded by the agent; submodules load what they need.
"""
