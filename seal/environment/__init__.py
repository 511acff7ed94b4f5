"""How a rollout talks to an environment service: the HTTP contract, its client, the dialogue."""
