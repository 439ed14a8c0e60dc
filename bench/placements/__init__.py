"""What choosing machines is worth: real trainings on planned machines, and on those that others choose."""
