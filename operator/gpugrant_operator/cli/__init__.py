"""The commands: `gpugrant`, `rdc`, `renet`.

Thin shells over the parts: they read arguments, call one function, and say in one sentence on stderr what went wrong.
The only room of the operator that may start the gate.
"""
