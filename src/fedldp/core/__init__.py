"""What every room may use, and what uses none: errors, randomness, the scan, frozen settings."""
