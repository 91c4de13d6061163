"""Random problems with known truth for every solver and operator that estimates its error. One module an area."""
