"""How one file becomes one sample: a file per format, and a registry by suffix."""
