"""The settings of a recipe as typed values: read once, checked whole, without torch or verl."""
