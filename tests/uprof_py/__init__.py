"""What the blocks of an .uprof recording hold; see ../read_uprof.py."""
