"""How a rollout talks to an environment service: the client and the dialogue loop."""
