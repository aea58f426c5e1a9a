"""The contract that the operator, the gate and the commands share.

Names, resources, the exclusive rule, the snapshot. Pure: nothing in this package opens a file, reads a
clock or an environment variable; whoever calls it does that and passes the values in.
"""
