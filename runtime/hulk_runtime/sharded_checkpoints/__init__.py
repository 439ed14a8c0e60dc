"""Checkpoints of models that several ranks hold together: each writes its part, to the store that is nearest to it.

storage           torch.distributed.checkpoint's storage over the stores of `checkpoints`, with a digest of each piece
training_state    model, optimizer and other objects <-> one state dict
safe_pickle       objects <-> bytes, without running what these name
replica_state     DiLoCo's part of it
staging           a state dict -> its copy in the CPU's memory
copy_writer       the copy's memory -> a copy in a store
saving            how long a script waits for it
copies            which ranks write a copy of the state together
stores            which stores a job has, and which is nearest
resumption        the newest state that is there -> this rank's part of it
checkpointer      what a script calls
"""
