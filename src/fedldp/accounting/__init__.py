"""What a configuration releases, and what that can be proven to protect."""
