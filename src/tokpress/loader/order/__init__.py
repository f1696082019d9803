"""Sample number -> which sequence of which source.

In: the sizes of sources, weights, a seed. Out: the global order. Nothing is shuffled or stored: the order is a function.

    permutation  position -> sample, shuffled, as a function
    shuffle      straight, shuffled, shuffled by blocks
    mixture      several sources in exact proportions, in stages
    schedule     sample number -> source and sequence: the global order
    steps        which samples make up a step, and which of them a rank takes
"""
