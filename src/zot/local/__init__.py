"""A real model on this machine, without key or network; to other packages just another provider."""
