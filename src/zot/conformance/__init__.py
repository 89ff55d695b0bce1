"""The conformance kit: drives any implementation of the zot wire and reports deviations."""
