"""What `scripts/gpu_smoke.py` measures on a machine with GPUs.

`models` makes the models, `before` runs the launcher's checks and the memory plan, `loops` runs the
recipe and verl's own loop, `sampling` asks the GPUs meanwhile, `figures` reduces what was logged,
`update` measures an update alone, `page` writes the report, and `kept` lets an interrupted
measurement go on.
"""
