"""verl's trainer with the method in it: the only package that imports Ray and vLLM."""
