"""What all operators share: a call is read (``base``, ``function``, ``grids``), applied and reported."""
