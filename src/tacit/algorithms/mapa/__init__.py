"""MAPA, with AUDP, ASGD and CSGD: each update is a gradient, applied when it comes."""
