"""The public protocol as data: commands, events, errors and codecs. No I/O, no session logic."""
