"""The method, standard library only: labels, diagnosis, profile, interface, weights."""
