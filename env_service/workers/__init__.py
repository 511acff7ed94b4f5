"""Worker processes: episodes live in them, tools run in them, and any of them may die.

`frames` is what both sides say to each other, `serve` the process itself, `worker` the service's
end of one process, `pool` the choice among them. An episode's truth is its journal, which the
service's process keeps: what a worker holds is a cache that any other worker can rebuild.
"""
