"""Training speed of this toolkit beside others, on one list of batches; see ../README.md."""
