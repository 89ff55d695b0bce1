"""Model clients and the catalog of models; knows nothing of the layers above it."""
