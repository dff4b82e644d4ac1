"""SCAFFOLD (Karimireddy et al. 2020): ``local_update`` for composed, with its ``training``."""
