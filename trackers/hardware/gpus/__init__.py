"""GPUs by vendor: NVML, amdsmi and AMD's sysfs."""
