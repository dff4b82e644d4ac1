"""FedPer (Arivazhagan et al. 2019): ``local_update`` for composed, with its ``training``."""
