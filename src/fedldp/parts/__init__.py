"""Parts that several systems share: client steps, encoders, server steps."""
