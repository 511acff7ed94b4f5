"""A checkpoint of verl's as a Hugging Face folder."""
