"""CLDP-Fed (Truex et al. 2020)."""
