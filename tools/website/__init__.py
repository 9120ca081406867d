"""The site: the notebooks as pages that need no kernel. `make site` builds it."""
