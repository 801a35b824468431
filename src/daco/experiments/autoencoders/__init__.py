"""The challenge's trained baselines, to compare with: one autoencoder per machine, three scores.

Inside, data flow one way: features -> scoring -> autoencoder -> scoretable -> run. Only
``autoencoder`` needs torch.
"""

EPOCHS = 100
SEED = 13711
"""As published."""
