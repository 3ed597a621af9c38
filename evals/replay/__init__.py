"""``vigil replay``: watch a video through the session core, and write down every decision."""
