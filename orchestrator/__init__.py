"""Vigil's orchestrator: the wire protocol, the session core, the runtime and the transports."""
