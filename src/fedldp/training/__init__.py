"""What clients compute: training by torch, one client or a group at a time."""
