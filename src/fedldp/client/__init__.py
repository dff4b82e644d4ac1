"""What runs on a client: the one place where its privacy is enforced, in a simulation or not."""
