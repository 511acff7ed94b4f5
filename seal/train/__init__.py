"""The only room that imports torch, Ray, verl and vLLM: adapters around the method."""
