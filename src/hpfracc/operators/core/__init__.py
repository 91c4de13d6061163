"""What all operators share: a call is read (``reading``), applied (``applying``) and reported (``reporting``)."""
