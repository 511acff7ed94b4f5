"""The only package that imports torch, Ray, verl and vLLM: adapters around the method."""
