"""The tools the model can call on this machine."""
