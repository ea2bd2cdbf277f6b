"""One file is one source of networks; see `segstream.models.body` for what it must offer."""
