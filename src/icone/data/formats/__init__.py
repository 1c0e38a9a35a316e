"""How one file becomes one sample: a reader per suffix, and a registry."""
