"""Worker processes: episodes live in them, tools run in them, and any of them may die.

`frames` is what both sides say to each other, `serve` the process itself, `worker` the service's
end of one process, and `pool` chooses among them. The truth about an episode is its journal, which
the service's process keeps. What a worker holds is a cache that any other worker can rebuild.
"""
