"""Other projects' servers as peers: the genuine thing, without weights."""
