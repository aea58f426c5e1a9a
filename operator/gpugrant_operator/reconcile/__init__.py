"""What shall be written, from what was observed: values in, a Plan out (design 2).

Pure: no I/O, no clock, no environment. Who gets a device is decided in `gpugrant_crds.decide` and nowhere else; this
room turns that decision, the inventory and the gate's report into writes, and into nothing where nothing differs.
"""
