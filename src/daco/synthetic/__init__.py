"""A small factory of sounds and faults: demonstrations, injected faults, sensitivity."""
