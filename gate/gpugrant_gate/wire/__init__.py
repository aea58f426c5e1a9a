"""HTTP/1 as bytes and values, for both sides of the gate. Pure: no socket, no clock, no log.

Requests are read more strictly than a Docker daemon reads them, so that no byte can mean one thing here and another
there; what goes to the daemon is always written anew, never a client's bytes (reference: RFC 9112, Go's net/http).
"""
