"""Options with which every variant fits into the small models of the recipes."""

SMALL = {
    "mixed": {"heads": {"gka": 3, "softmax": 1}},
}
