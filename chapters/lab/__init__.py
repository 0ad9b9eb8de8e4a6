"""Triton on a page: what chapters 15 to 18 run, judge, compile and draw their kernels with."""
