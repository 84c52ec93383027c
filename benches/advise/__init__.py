"""What it costs a program to be watched by `cenote advise`."""
