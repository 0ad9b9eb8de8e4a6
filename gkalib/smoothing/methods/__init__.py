"""How a smoothing problem is computed: one file a method."""
