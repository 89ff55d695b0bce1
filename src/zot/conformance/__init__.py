"""The conformance kit: drives any implementation of the zot wire and says where it differs."""
