"""A session paired with a session of a full-duplex engine: the engine keeps model state, we keep the rest."""
