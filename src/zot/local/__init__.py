"""A real model on this machine, with no key and no network. It is one more provider to the rest."""
