"""The operator's process: watches the API, decides through `reconcile`, and carries out what was planned (design 2).

It is the only writer of ledgers and statuses. It never decides who gets a device, never writes a spec, and never sends
a gate what is not stored in the ledger first.
"""
