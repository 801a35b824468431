"""Where recordings come from: folders, HTTP (`service`), live sound."""
