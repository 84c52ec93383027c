"""What parallel programs do to files (`load.c`), in several places in one run."""
