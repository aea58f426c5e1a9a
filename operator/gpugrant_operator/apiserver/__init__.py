"""The standalone API server: a small Kubernetes-compatible API over a directory of YAML files.

It serves one machine without Kubernetes. `objects/` is pure (what a request means), `store/` makes it durable, the rest
is the shell around them. It must never acknowledge a write that a crash can take back, and never decide about a grant
itself: admission asks `gpugrant_crds`.
"""
