"""What prepares and proves the fused operations on a GPU, and on a machine without one."""
