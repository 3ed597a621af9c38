"""A client of one engine session at ``/v1/realtime?duplex=1``: ``link`` the seam, ``protocol`` the rules
without I/O, ``client`` the socket. Ids in here are the engine's own; nobody else's."""
