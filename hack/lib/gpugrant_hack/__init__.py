"""Provisioning for a checkout: tools, sealed Docker daemons, the example system.

Standard library only, since it runs before anything is installed. It changes nothing of the machine's own: what it
brings lies in a cache folder, what it starts lies below one root and can be stopped as a whole.
"""
