"""What runs on a server: the one round loop, whoever the clients are."""
