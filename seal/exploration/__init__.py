"""The model proposer: a model explores training worlds through the service and writes candidates.

In: an OpenAI-compatible endpoint, a split, the environment service. Out: candidates
(`seal.records.candidates`), which nobody has checked: the synthesiser in env_service does that, by
execution. `walk` lets the model call tools, `prompts` is what it is told, `answers` reads what it
writes, `proposer` does one seed, `explore` all of them. Called by scripts/explore.py.
"""
