"""Recorded sound, and pictures, played to a live session as a microphone and a camera would bring them."""
