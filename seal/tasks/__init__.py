"""BFCL's tasks as data files: how they are split, and the tables that verl reads."""
