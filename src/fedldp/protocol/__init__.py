"""What passes between a server and its clients: roles, bytes, both ends of the wire."""
