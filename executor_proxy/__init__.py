"""The file-system view as an executor asks for it: remote, with a local fallback."""
