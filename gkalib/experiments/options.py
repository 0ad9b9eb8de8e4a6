"""Options with which every variant fits into the small models of the studies."""

SMALL = {
    "mixed": {"heads": {"gka": 3, "softmax": 1}},
}
