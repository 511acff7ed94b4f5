"""What a run leaves on the disk, and how it is read back: standard library only, no torch."""
