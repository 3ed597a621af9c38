"""A session paired with one session of a full-duplex engine: the engine keeps model state, we keep the rest."""
