"""Recordings to waveforms: bounded decoding, channel policies, sound quality.

Start with `decode` (a file or bytes to float32 samples at a network's rate, within limits).
`formats` knows extensions and headers, `microphones` what a channel policy takes of several
microphones, `subtraction` removes the far one, and `quality` names silent and clipped sound.
"""
