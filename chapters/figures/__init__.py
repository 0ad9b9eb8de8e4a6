"""Figures that one chapter alone draws, each in the file of its chapter; several draw ``gkalib.viz``'s."""
