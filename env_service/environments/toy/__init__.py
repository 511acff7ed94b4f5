"""A world of a lamp and a counter: the template for a new environment."""
