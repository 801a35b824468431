"""What is known about clips: folders, manifests, DCASE layouts, tables of embeddings."""
