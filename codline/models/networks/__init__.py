"""Networks and their layers: the part of the models that needs torch, imported when a network is built."""
