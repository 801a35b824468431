"""From recordings to vectors: files, bytes or a cluster's work, in shards that resume."""
