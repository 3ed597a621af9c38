"""The full-duplex engines behind one Vigil: which has room, which keeps up, which is left alone."""
