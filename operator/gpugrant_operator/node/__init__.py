"""What hardware a machine has, its CDI specs, and the inventory (design 7; R10 to R18).

`gather` reads, `cards`, `specs` and `nvidia_spec` decide, `setup` puts it together and writes. All paths hang under
one root that is read and one that is written, so that a recorded tree is a machine. No runtime is ever configured,
and a failing probe is a problem entry, never the end of the run.
"""
