"""Compare training speed of this toolkit and others on the same batches; see ../README.md."""
