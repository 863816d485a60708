"""The machine: devices, processes, signals, files."""
