"""`gpugrant doctor`: what is wrong on this machine, each with its mend.

`gather` looks (it changes nothing, needs no running part, and waits for nobody longer than seconds), `checks` decides
(pure: one small function a check), `mends` does the few mends that lose nothing. A check that can't look says so and
never counts as passed.
"""
