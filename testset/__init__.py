"""Problems of fractional calculus with known answers, as data, and runners for several libraries: see README.md."""
