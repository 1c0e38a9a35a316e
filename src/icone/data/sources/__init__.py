"""Where samples come from: folders, array files, named sets; one file each, and a registry."""
