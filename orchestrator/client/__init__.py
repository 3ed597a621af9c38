"""The Python client of a Vigil server: connect, send frames, audio and text, read typed events, resume.

It knows the wire protocol alone; the service never imports it, nor it the service.
"""

from orchestrator.client.client import VigilClient
from orchestrator.client.protocol import ClientError, ConnectionResumed, Invitation, SessionLost

__all__ = ["ClientError", "ConnectionResumed", "Invitation", "SessionLost", "VigilClient"]
