"""What an encoder's features are worth: probes with labels, geometry without."""
