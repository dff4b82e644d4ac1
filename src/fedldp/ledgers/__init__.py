"""What clients have released: budgets, one protocol, and its two stores."""
