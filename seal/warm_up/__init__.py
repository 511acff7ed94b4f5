"""Training on demonstrations before the reinforcement learning, and the tiny policy made of it."""
