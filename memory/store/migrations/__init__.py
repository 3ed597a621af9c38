"""Schema steps, one SQL file each, in the order of their numbers. A released file never changes."""
