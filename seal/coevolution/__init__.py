"""The method: labels, diagnosis, profile, interface, weights. No torch, and no input or output."""
