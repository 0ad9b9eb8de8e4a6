"""The experiments that chapters quote: one file each, with its arms."""
