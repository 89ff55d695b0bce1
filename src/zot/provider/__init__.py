"""Model clients and the model catalog; independent of the layers above."""
