"""PrivUnit in federated learning (Bhowmick et al. 2018)."""
