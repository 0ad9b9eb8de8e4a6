"""Triton on a page: what chapters 17 to 20 run, judge, compile and draw their kernels with."""
