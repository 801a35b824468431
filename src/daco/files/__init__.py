"""Files on this computer and elsewhere: atomic writes, locks, remote paths, downloads."""
