"""The session aggregate, sans-IO: a command or a backend output and a time go in, effects come out."""
