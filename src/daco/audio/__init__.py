"""Recordings: bounded decoding, microphones and their subtraction, sound quality."""
