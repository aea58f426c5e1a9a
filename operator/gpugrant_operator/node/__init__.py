"""What hardware a machine has, its CDI specs, and the inventory (design 7; R10 to R18, R38 to R44).

`gather` reads; `cards`, `specs`, `nvidia_spec`, `packages` and `units` decide; `setup` puts the steps in order, which
`toolkit`, `generation`, `refresh`, `persistenced` and `daemons` take, each with the one `run` that all share. All paths
hang under one root that is read and one that is written, so that a recorded tree is a machine. No runtime is ever
configured, and a failing probe is a problem entry, never the end of the run.
"""
