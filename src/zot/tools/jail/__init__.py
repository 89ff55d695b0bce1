"""The jail: where tools see one directory only, and commands can change nothing else."""
