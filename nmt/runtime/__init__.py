"""The machine that a command runs on: devices, processes, signals, memory, files."""
